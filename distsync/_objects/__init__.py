"""The objects that programs use; the public modules beside this folder only name them."""
