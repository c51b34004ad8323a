"""Which messages and batches SQS accepts."""

from rule import API, GUIDE, bodies, outcome, rule, saw, text

MIB = 1024 * 1024
METADATA = GUIDE + "sqs-message-metadata.html"


def entries(count, body="a"):
    return [{"Id": str(number), "MessageBody": body} for number in range(count)]


@rule(API + "SendMessage.html", "The minimum size is one character. The maximum size is 1 MiB", "refused, accepted, refused")
def a_message_has_one_byte_to_one_mebibyte(sqs):
    queue = sqs.make()
    return saw(*(outcome(queue.send, "x" * size) for size in (0, MIB, MIB + 1)))


@rule(
    API + "MessageAttributeValue.html",
    "All parts of the message attribute, including Name, Type, and Value, are part of the message size restriction",
    "accepted, refused",
)
def attributes_are_part_of_the_size(sqs):
    queue = sqs.make()
    send = lambda size: outcome(queue.send, "x" * size, attributes={"key": text("text")})
    parts = len("key" + "String" + "text")
    return saw(send(MIB - parts), send(MIB - parts + 1))


@rule(API + "SendMessage.html", "rejects the message and returns an InvalidMessageContents error", "refused, refused, accepted")
def characters_outside_of_xml_are_refused(sqs):
    queue = sqs.make()
    return saw(*(outcome(queue.send, body) for body in ("\x08", "\ufffe", "\t\n\r \ud7ff\ue000\ufffd\U0010ffff")))


@rule(METADATA, "Each message can have up to 10 attributes", "accepted, refused")
def a_message_has_up_to_ten_attributes(sqs):
    queue = sqs.make()
    return saw(*(outcome(queue.send, attributes={f"a{n}": text("x") for n in range(count)}) for count in (10, 11)))


@rule(
    METADATA,
    "A-Z, a-z, 0-9, underscore (_), hyphen (-), and period (.). […] Can't start with AWS. or Amazon. […] "
    "Must not start or end with a period […] Must not have periods in a sequence",
    "accepted" + 5 * ", refused",
)
def names_of_attributes_follow_their_rules(sqs):
    queue = sqs.make()
    names = ("a.b_c-1", ".a", "a..b", "a b", "AWS.key", "x" * 257)
    return saw(*(outcome(queue.send, attributes={name: text("x")}) for name in names))


@rule(API + "MessageAttributeValue.html", "Name, type, value and the message body must not be empty or null", "refused")
def an_attribute_without_a_value_is_refused(sqs):
    return outcome(sqs.make().send, attributes={"key": text("")})


@rule(METADATA, "Amazon SQS removes leading and trailing zeroes", "7, 12.5")
def a_number_loses_its_leading_and_trailing_zeroes(sqs):
    queue = sqs.make()
    number = lambda value: {"DataType": "Number", "StringValue": value}
    queue.send(attributes={"leading": number("007"), "trailing": number("12.50")})
    received = queue.receive()[0]["MessageAttributes"]
    return saw(received["leading"]["StringValue"], received["trailing"]["StringValue"])


@rule(METADATA, "Number attributes can store positive or negative numerical values", "refused")
def a_number_that_is_none_is_refused(sqs):
    return outcome(sqs.make().send, attributes={"amount": {"DataType": "Number", "StringValue": "ten"}})


@rule(
    METADATA,
    "A number can have up to 38 digits of precision, and it can be between 10^-128 and 10^+126",
    "accepted, accepted, accepted" + 3 * ", refused",
)
def a_number_has_38_digits_and_is_in_its_range(sqs):
    queue = sqs.make()
    numbers = ("9" * 38, "1e126", "1e-128", "9" * 39, "1e127", "9e-129")
    return saw(*(outcome(queue.send, attributes={"n": {"DataType": "Number", "StringValue": value}}) for value in numbers))


@rule(
    API + "SendMessageBatch.html",
    "TooManyEntriesInBatchRequest, EmptyBatchRequest, BatchEntryIdsNotDistinct, InvalidBatchEntryId",
    "accepted" + 4 * ", refused",
)
def a_batch_has_one_to_ten_entries_with_distinct_ids(sqs):
    queue = sqs.make()
    invalid = [{"Id": "a.b", "MessageBody": "a"}]
    return saw(*(outcome(queue.send_batch, *each) for each in (entries(10), entries(11), [], 2 * entries(1), invalid)))


@rule(
    API + "SendMessageBatch.html",
    "the maximum total payload size (the sum of the individual lengths of all of the batched messages) […] 1 MiB",
    "accepted, refused",
)
def a_batch_has_at_most_one_mebibyte(sqs):
    queue = sqs.make()
    return saw(*(outcome(queue.send_batch, *entries(2, "x" * size)) for size in (MIB // 2, MIB // 2 + 1)))


@rule(
    API + "SendMessageBatch.html",
    "the maximum total payload size (the sum of the individual lengths of all of the batched messages) […] 1 MiB",
    "accepted, refused",
)
def the_size_of_a_batch_includes_attributes(sqs):
    queue = sqs.make()
    parts = 2 * len("key" + "String" + "text")
    batch = lambda size: [{**entry, "MessageAttributes": {"key": text("text")}} for entry in entries(2, "x" * size)]
    return saw(*(outcome(queue.send_batch, *batch((MIB - parts) // 2 + more)) for more in (0, 1)))


@rule(
    API + "SendMessageBatch.html",
    "The result of sending each message is reported individually in the response",
    "1 sent, 1 failed, a",
)
def an_entry_that_fails_does_not_affect_the_others(sqs):
    queue = sqs.make()
    said = queue.send_batch({"Id": "1", "MessageBody": "a"}, {"Id": "2", "MessageBody": "\x08"})
    counts = (f"{len(said.get('Successful', []))} sent", f"{len(said.get('Failed', []))} failed")
    return saw(*counts, bodies(queue.receive()))


@rule(API + "SendMessage.html", "MessageDeduplicationId: This parameter applies only to FIFO queues", "refused", "accepted")
def a_deduplication_id_is_sent_to_a_standard_queue(sqs):
    return outcome(sqs.make().send, id="d")
