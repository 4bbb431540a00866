"""The benchmark: our figures beside those of peers and limits, measured in the same run.

Run it as `python -m bench`. Nothing here is imported by the product.
"""
