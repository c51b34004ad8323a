#!/usr/bin/env python3
"""A Lambda function on the Runtime API that returns $RESPONSE, or fails without it. `ID` is the id of the message `a2`."""

import json
import os
from urllib.request import ProxyHandler, Request, build_opener

api = f"http://{os.environ['AWS_LAMBDA_RUNTIME_API']}/2018-06-01/runtime/invocation"
opener = build_opener(ProxyHandler({}))

while True:
    with opener.open(f"{api}/next") as invocation:
        request, event = invocation.headers["Lambda-Runtime-Aws-Request-Id"], json.load(invocation)
    if "RESPONSE" in os.environ:
        [second] = [record["messageId"] for record in event["Records"] if record["body"] == "a2"]
        response = os.environ["RESPONSE"].replace("ID", second)
        opener.open(Request(f"{api}/{request}/response", response.encode())).close()
    else:
        error = json.dumps({"errorMessage": "failed", "errorType": "Error"}).encode()
        opener.open(Request(f"{api}/{request}/error", error)).close()
