"""Powertools for AWS Lambda (Python): batch and idempotency utilities on Redis as in its documentation."""

import os
import traceback

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
from aws_lambda_powertools.utilities.idempotency.persistence.cache import CachePersistenceLayer

processor = BatchProcessor(event_type=EventType.SQS)
store = CachePersistenceLayer(url=os.environ["REDIS_URL"], ssl=False)
# The longest retention of an SQS queue, as in this library.
config = IdempotencyConfig(event_key_jmespath="messageId", expires_after_seconds=14 * 24 * 60 * 60)


@idempotent_function(data_keyword_argument="record", config=config, persistence_store=store)
def work(record):
    return "the order was dispatched"


def handler(event, context):
    config.register_lambda_context(context)
    response = process_partial_response(event=event, record_handler=work, processor=processor, context=context)
    if processor.exceptions:
        # The benchmark prints it and stops.
        traceback.print_exception(*processor.exceptions[0])
    return response
