"""A server in place of AWS that `sam deploy` talks to: S3 takes every upload, and CloudFormation refuses every change set
after it has kept the request."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

# The stack of the bucket to which SAM uploads, as SAM creates it.
BUCKET_STACK = """<DescribeStacksResponse xmlns="http://cloudformation.amazonaws.com/doc/2010-05-15/"><DescribeStacksResult>
<Stacks><member><StackName>aws-sam-cli-managed-default</StackName><StackStatus>CREATE_COMPLETE</StackStatus>
<CreationTime>2026-01-01T00:00:00Z</CreationTime>
<Tags><member><Key>ManagedStackSource</Key><Value>AwsSamCli</Value></member></Tags>
<Outputs><member><OutputKey>SourceBucket</OutputKey><OutputValue>uploads</OutputValue></member>
<member><OutputKey>Version</OutputKey><OutputValue>1.0.0</OutputValue></member></Outputs>
</member></Stacks></DescribeStacksResult></DescribeStacksResponse>"""
IDENTITY = """<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>
<Account>123456789012</Account><Arn>arn:aws:iam::123456789012:user/test</Arn><UserId>test</UserId>
</GetCallerIdentityResult></GetCallerIdentityResponse>"""
ERROR = '<ErrorResponse><Error><Type>Sender</Type><Code>{}</Code><Message>{}</Message></Error></ErrorResponse>'


class Aws:
    """Serves until the end of the `with` block. `uploads` are the objects in S3, `change_sets` the requests."""

    def __init__(self):
        self.uploads, self.change_sets = {}, []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def cloudformation(self, request):
        """The status and the response."""
        match request["Action"], request.get("StackName"):
            case "DescribeStacks", "aws-sam-cli-managed-default":
                return 200, BUCKET_STACK
            case "DescribeStacks", name:
                return 400, ERROR.format("ValidationError", f"Stack with id {name} does not exist")
            case "CreateChangeSet", _:
                self.change_sets.append(request)
                return 400, ERROR.format("ValidationError", "the test ends here")
            case "GetCallerIdentity", _:
                return 200, IDENTITY
            case action, _:
                return 400, ERROR.format("ValidationError", f"unexpected {action}")


def handler(aws):
    class Handler(BaseHTTPRequestHandler):
        def answer(self, status, body=""):
            self.send_response(status)
            self.send_header("ETag", '"0"')
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def body(self):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))

        def do_POST(self):
            request = parse_qs(self.body().decode(), keep_blank_values=True)
            self.answer(*aws.cloudformation({name: value for name, (value,) in request.items()}))

        def do_PUT(self):
            if self.headers.get("Expect", "").lower() == "100-continue":
                pass  # http.server has answered it.
            aws.uploads[self.path.split("?")[0]] = self.body()
            self.answer(200)

        def do_HEAD(self):
            self.answer(200 if self.path in aws.uploads else 404)

        def do_GET(self):
            self.answer(200)

        def log_message(self, *_):
            pass

    return Handler
