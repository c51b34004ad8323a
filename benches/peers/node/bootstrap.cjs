// A Lambda runtime client with one persistent connection. AWS's client for Node.js needs cmake.
//
// The first argument names the module of the function. Its `connect` returns the handler.

const http = require('node:http');

const agent = new http.Agent({ keepAlive: true, maxSockets: 1, noDelay: true });
const [host, port] = process.env.AWS_LAMBDA_RUNTIME_API.split(':');
const root = '/2018-06-01/runtime/invocation';

const call = (method, path, body) =>
  new Promise((resolve, reject) => {
    const headers = body === undefined ? {} : { 'Content-Length': Buffer.byteLength(body) };
    const request = http.request({ agent, host, port, method, path, headers }, (response) => {
      const chunks = [];
      response.on('data', (chunk) => chunks.push(chunk));
      response.on('end', () => resolve({ headers: response.headers, body: Buffer.concat(chunks) }));
    });
    request.on('error', reject);
    request.end(body);
  });

const serve = async () => {
  const handler = await require(process.argv[2]).connect();
  for (;;) {
    const { headers, body } = await call('GET', `${root}/next`);
    const id = headers['lambda-runtime-aws-request-id'];
    const deadline = Number(headers['lambda-runtime-deadline-ms']);
    const context = {
      awsRequestId: id,
      functionName: process.env.AWS_LAMBDA_FUNCTION_NAME,
      getRemainingTimeInMillis: () => deadline - Date.now(),
    };
    try {
      const response = await handler(JSON.parse(body), context);
      await call('POST', `${root}/${id}/response`, JSON.stringify(response));
    } catch (error) {
      const report = { errorType: error.name, errorMessage: error.message, stackTrace: [error.stack] };
      await call('POST', `${root}/${id}/error`, JSON.stringify(report));
    }
  }
};

serve().catch((error) => {
  console.error(error);
  process.exit(1);
});
