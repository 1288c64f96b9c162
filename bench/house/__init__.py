"""How easy the tree is to find one's way in: rooms, circles, lengths, the walks of four values.

A room is a folder's own modules; circles are counted among modules, and among the neighbours in
every folder.

A walk follows a value while the program runs (walk.py). A **stop** is a function of the tree that
reads, renames or copies the value: it is handed it as an argument (alone, or in a container or a
dataclass), gets it as a result, or reads an attribute of it. A function counts once for every
function that calls it, so that loops and repeats are one stop. A **turn back** is when the walk
comes to a file again that it has left. A tree that only moves its files into other folders has the
same stops and turns back.

What is followed: of a gradient and a message the very object, whatever torch computes from it,
whatever a function returns that was handed it, an object that is constructed with it; bytes by what
they are, so also beyond the broker. Of a run file and settings the objects of these classes, the
sections in them, and every record that a function makes of them (a frozen dataclass of plain
values: a plan, say): a copy under other names. A model is none.

Files opened to accept a message are the services' own, from its arrival to the store, where [guard]
is on.
"""
