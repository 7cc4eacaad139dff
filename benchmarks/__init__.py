"""Commands that measure this package beside its goals, Hudi and deltalake; README.md lists them."""
