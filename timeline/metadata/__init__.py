"""What the files of instants say, as frozen values, and how bytes become them.

A record of Hudi's enters as a class and a row of the codec. No I/O: bytes come in, values go out.
"""
