"""Rewrites crates/postgres/certificates/rds.pem, the root certificates of Amazon RDS that the package contains.

    curl -O https://truststore.pki.rds.amazonaws.com/global/global-bundle.pem
    python3 scripts/rds_roots.py global-bundle.pem "AWS's bundle of $(date +%F)"

Keeps each root certificate of a region that is valid for at least another year, and omits those of RDS's own tests (Beta,
Preview). Requires openssl and Python 3.11. Roots that are in the file already and not in the bundle are kept too: AWS adds regions, and
does not remove them.
"""

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

FILE = Path(__file__).resolve().parent.parent / "crates" / "postgres" / "certificates" / "rds.pem"
REGION = re.compile(r"Amazon RDS ([a-z0-9-]+) Root CA (RSA2048|RSA4096|ECC384) G\d+")
CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n", re.DOTALL)
HEADER = """\
Root certificates of Amazon RDS and Aurora, by region: what AWS publishes for its customers' clients at
https://truststore.pki.rds.amazonaws.com/global/global-bundle.pem, less the certificates that expire within a year and
those of RDS's own tests. scripts/rds_roots.py writes this file. Readers ignore what is outside of the certificates.
Source: {source}.
"""


def main(bundle, source):
    found = {}
    for text in (FILE.read_text() if FILE.exists() else "", Path(bundle).read_text()):
        for pem in CERTIFICATE.findall(text):
            name, end = described(pem)
            if REGION.fullmatch(name) and end > datetime.now(UTC) + timedelta(days=365):
                found[name] = f"\n{name}, until {end:%Y-%m-%d}\n{pem}"
    FILE.write_text(HEADER.format(source=source) + "".join(found[name] for name in sorted(found)))
    regions = {REGION.fullmatch(name).group(1) for name in found}
    print(f"{len(found)} certificates of {len(regions)} regions: {' '.join(sorted(regions))}")


def described(pem):
    """The common name and the end of the validity of a certificate that is signed by itself."""
    show = ["openssl", "x509", "-noout", "-subject", "-enddate", "-nameopt", "sep_multiline,sname,utf8"]
    shown = subprocess.run(show, input=pem, capture_output=True, text=True, check=True).stdout
    name = re.search(r"CN\s*=\s*(.+)", shown).group(1).strip()
    end = datetime.strptime(re.search(r"notAfter=(.+) GMT", shown).group(1), "%b %d %H:%M:%S %Y").replace(tzinfo=UTC)
    return name, end


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
