"""Tokens for ElastiCache and RDS as AWS's own botocore signs them, which ours are compared with.

    python tests/identity/sign.py            says whether botocore still signs what tokens.json has
    python tests/identity/sign.py --write    writes tokens.json anew

Run it with the Python of an environment that has botocore, which comes with aws-sam-cli. It needs no AWS account and no
network. The keys are those of AWS's own examples, or made up.
"""

import datetime
import json
import os
import sys
from pathlib import Path
from unittest import mock

# Where awscrt is installed, botocore signs by it, in another order and at no other time than now.
os.environ["BOTO_DISABLE_CRT"] = "true"

import botocore.auth  # noqa: E402
import botocore.session  # noqa: E402
from botocore.credentials import Credentials  # noqa: E402
from botocore.model import ServiceId  # noqa: E402
from botocore.signers import RequestSigner  # noqa: E402

TOKENS = Path(__file__).resolve().with_name("tokens.json")

PLAIN = {
    "service": "elasticache",
    "user": "payments",
    "cache": "idempotency",
    "serverless": False,
    "region": "eu-central-1",
    "access_key": "AKIDEXAMPLE",
    "secret_key": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    "session_token": None,
    "time": "2026-11-21T12:34:56Z",
}

HOST = "payments.cluster-c0ffee.eu-central-1.rds.amazonaws.com"
DATABASE = {name: PLAIN[name] for name in ("region", "access_key", "secret_key", "session_token", "time")}
DATABASE |= {"service": "rds-db", "user": "payer", "host": HOST, "port": 5432}

CASES = [
    PLAIN,
    PLAIN | {"serverless": True},
    PLAIN | {"session_token": "IQoJb3JpZ2luX2VjEAAaDGV1LWNlbnRyYWwtMSJHMEUCIQD/+a+b/c=="},
    PLAIN | {"serverless": True, "session_token": "a+b/c=d&e f~g-h_i.j%k*l'(m)!$,;:@?#[]ä"},
    PLAIN | {"user": "Iam-User-01", "cache": "my-Cache-2"},
    PLAIN | {"region": "cn-north-1", "access_key": "ASIAEXAMPLE", "secret_key": "a/+=b"},
    PLAIN | {"time": "2027-01-01T00:00:00Z"},
    PLAIN | {"time": "2024-02-29T23:59:59Z"},
    DATABASE,
    DATABASE | {"session_token": "IQoJb3JpZ2luX2VjEAAaDGV1LWNlbnRyYWwtMSJHMEUCIQD/+a+b/c=="},
    DATABASE | {"session_token": "a+b/c=d&e f~g-h_i.j%k*l'(m)!$,;:@?#[]ä"},
    DATABASE | {"user": "a+b/c=d&e f~g-h_i.j%k*l'(m)!$,;:@?#[]ä"},
    DATABASE | {"port": 6543},
    DATABASE | {"region": "cn-north-1", "access_key": "ASIAEXAMPLE", "secret_key": "a/+=b"},
    DATABASE | {"time": "2027-01-01T00:00:00Z"},
    DATABASE | {"time": "2024-02-29T23:59:59Z"},
]


def token(case):
    now = time_of(case)
    credentials = Credentials(case["access_key"], case["secret_key"], case["session_token"])
    with mock.patch.object(botocore.auth, "get_current_datetime", lambda *_, **__: now):
        return {"elasticache": of_a_cache, "rds-db": of_a_database}[case["service"]](case, credentials)


def of_a_cache(case, credentials):
    """As AWS's documentation has it done: a presigned request without its scheme."""
    signer = RequestSigner(
        ServiceId("elasticache"),
        case["region"],
        "elasticache",
        "v4",
        credentials,
        botocore.session.get_session().get_component("event_emitter"),
    )
    kind = "&ResourceType=ServerlessCache" if case["serverless"] else ""
    request = {
        "method": "GET",
        "url": f"https://{case['cache'].lower()}/?Action=connect&User={case['user']}{kind}",
        "body": {},
        "headers": {},
        "context": {},
    }
    signed = signer.generate_presigned_url(
        request, operation_name="connect", expires_in=900, region_name=case["region"]
    )
    return signed.removeprefix("https://")


def of_a_database(case, credentials):
    """By the very call that botocore has for it."""
    client = botocore.session.get_session().create_client(
        "rds",
        region_name=case["region"],
        aws_access_key_id=credentials.access_key,
        aws_secret_access_key=credentials.secret_key,
        aws_session_token=credentials.token,
    )
    return client.generate_db_auth_token(case["host"], case["port"], case["user"])


def time_of(case):
    return datetime.datetime.fromisoformat(case["time"].replace("Z", "+00:00"))


def main():
    signed = [case | {"unix_time": int(time_of(case).timestamp()), "token": token(case)} for case in CASES]
    if sys.argv[1:] == ["--write"]:
        TOKENS.write_text(json.dumps(signed, indent=2, ensure_ascii=False) + "\n")
    elif json.loads(TOKENS.read_text()) != signed:
        sys.exit(f"botocore {botocore.__version__} signs other tokens than {TOKENS.name} has; --write writes it anew")
    print(f"{len(signed)} tokens are as botocore {botocore.__version__} signs them")


if __name__ == "__main__":
    main()
