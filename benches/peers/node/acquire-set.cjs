// The consumer usually shown in articles: SET NX PX to acquire, then SET PX with the result.

const Redis = require('ioredis').default;

// The longest retention of an SQS queue, as in this library.
const RETENTION_MS = 14 * 24 * 60 * 60 * 1000;

exports.connect = async () => {
  const redis = new Redis(process.env.REDIS_URL);

  const work = async (record) => {
    const key = `orders:${record.messageId}`;
    const acquired = await redis.set(key, JSON.stringify({ status: 'PROCESSING' }), 'PX', RETENTION_MS, 'NX');
    if (acquired === null) {
      // A duplicate, or in progress.
      const { status } = JSON.parse(await redis.get(key));
      return status === 'COMPLETED';
    }
    const completed = { status: 'COMPLETED', result: 'the order was dispatched' };
    await redis.set(key, JSON.stringify(completed), 'PX', RETENTION_MS);
    return true;
  };

  const attempt = async (record) => {
    try {
      return await work(record);
    } catch (error) {
      // The benchmark prints it and stops.
      console.error(error);
      return false;
    }
  };

  return async (event) => {
    const done = await Promise.all(event.Records.map(attempt));
    const failed = event.Records.filter((_record, at) => !done[at]);
    return { batchItemFailures: failed.map(({ messageId }) => ({ itemIdentifier: messageId })) };
  };
};
