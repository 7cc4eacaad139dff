"""The content of instants' files as frozen values, and the conversion from and to bytes.

A new record of Hudi's is a class and a row of the codec. No I/O: bytes come in, values go out.
"""
