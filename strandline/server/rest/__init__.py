"""``/v2``, for people and their tools: what a service knows, without a timeline hash.

``operation`` has the one table of its routes, from which come the server's map, the OpenAPI
document, the reference and ``strandline.client``. Nothing here is on the path of Hudi's routes.
"""
