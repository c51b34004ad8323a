// Powertools for AWS Lambda (TypeScript): batch and idempotency utilities on Redis as in its documentation, with messages
// in parallel. Plain JavaScript, as a TypeScript compiler would emit.

const { BatchProcessor, EventType, processPartialResponse } = require('@aws-lambda-powertools/batch');
const { IdempotencyConfig, makeIdempotent } = require('@aws-lambda-powertools/idempotency');
const { CachePersistenceLayer } = require('@aws-lambda-powertools/idempotency/cache');
const { createClient } = require('@redis/client');

exports.connect = async () => {
  const client = await createClient({ url: process.env.REDIS_URL }).connect();
  const persistenceStore = new CachePersistenceLayer({ client });
  const processor = new BatchProcessor(EventType.SQS);
  // The longest retention of an SQS queue, as in this library.
  const config = new IdempotencyConfig({ eventKeyJmesPath: 'messageId', expiresAfterSeconds: 14 * 24 * 60 * 60 });
  const work = makeIdempotent(async (_record) => 'the order was dispatched', { config, persistenceStore });

  return async (event, context) => {
    config.registerLambdaContext(context);
    const response = await processPartialResponse(event, work, processor, { context });
    if (processor.errors.length > 0) {
      // The benchmark prints it and stops.
      console.error(processor.errors[0]);
    }
    return response;
  };
};
