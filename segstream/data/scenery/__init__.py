"""How the pictures of the dataset `scenes` are drawn: shapes, textures, objects, places, and their composition.

Everything is drawn with operations whose result IEEE 754 fixes to the last bit (sums, products, quotients, square
roots, comparisons, gathers) on arrays; no array ever passes through a sine, a power or a matrix product, whose bits
depend on the processor. So a picture is the same on every machine.
"""
