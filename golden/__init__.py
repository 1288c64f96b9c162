"""`make golden`: a refactoring changes nothing that anybody outside can see, to the last bit.

See CONTRIBUTING.md.
"""
