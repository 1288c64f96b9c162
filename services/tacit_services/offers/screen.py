"""The consent screen: what an owner reads before anything of the rows is used.

screen = Screen.of(offer, looked)
screen.print(console())         # at 80 columns
screen.document()               # the same for --json
"""
