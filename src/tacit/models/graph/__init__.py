"""Models as data: a graph of listed operations, that is read, checked and run without its code."""
