"""The five published systems, each as pure state machines for a server and its edges."""
