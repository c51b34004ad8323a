// Powertools for AWS Lambda (TypeScript): its batch and idempotency utilities on Redis, as its
// documentation shows them, messages in parallel. It is what a TypeScript compiler would leave.

const { BatchProcessor, EventType, processPartialResponse } = require('@aws-lambda-powertools/batch');
const { IdempotencyConfig, makeIdempotent } = require('@aws-lambda-powertools/idempotency');
const { CachePersistenceLayer } = require('@aws-lambda-powertools/idempotency/cache');
const { createClient } = require('@redis/client');

exports.connect = async () => {
  const client = await createClient({ url: process.env.REDIS_URL }).connect();
  const persistenceStore = new CachePersistenceLayer({ client });
  const processor = new BatchProcessor(EventType.SQS);
  // As long as SQS can keep a message, as ours.
  const config = new IdempotencyConfig({ eventKeyJmesPath: 'messageId', expiresAfterSeconds: 14 * 24 * 60 * 60 });
  const work = makeIdempotent(async (_record) => 'nothing was done, gladly', { config, persistenceStore });

  return async (event, context) => {
    config.registerLambdaContext(context);
    const answer = await processPartialResponse(event, work, processor, { context });
    if (processor.errors.length > 0) {
      // The benchmark shows it, and ends.
      console.error(processor.errors[0]);
    }
    return answer;
  };
};
