"""The pages of the reference, made from the parts themselves whenever the site is built."""
