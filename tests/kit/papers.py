"""Certificates for tests of TLS."""

from __future__ import annotations

from pathlib import Path

import trustme

from strandline.server.http.server_options import ServerOptions


class Papers:
    """An authority, and a certificate of it for this machine, as files."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        issued = self.authority.issue_cert("127.0.0.1", "localhost")
        self.ca = str(folder / "ca.pem")
        self.certificate, self.key = str(folder / "service.pem"), str(folder / "service.key")
        self.authority.cert_pem.write_to_path(self.ca)
        issued.private_key_pem.write_to_path(self.key)
        for blob in issued.cert_chain_pems:
            blob.write_to_path(self.certificate, append=True)

    @property
    def options(self) -> ServerOptions:
        """Those of a server with the certificate."""
        return ServerOptions(tls_certificate=self.certificate, tls_key=self.key)
