"""The version of the distribution; setuptools reads it without importing the package."""

__version__ = "0.1.0"
