"""The event source mapping: queue, partial batch response, batch size, window, concurrency and filters."""

import unittest

from template import QUEUES, arn_of, deployed, ledger, parameter, source


def mapping(**parameters):
    (found,) = deployed(**parameters).of_type("AWS::Lambda::EventSourceMapping").values()
    return found


def of_the_ledger(**parameters):
    (found,) = ledger(**parameters).of_type("AWS::Lambda::EventSourceMapping").values()
    return found


class Mapping(unittest.TestCase):
    def test_it_leads_from_the_queue_to_the_function(self):
        self.assertEqual(mapping()["EventSourceArn"], arn_of("MessageQueue"))
        own = QUEUES["its own queue"]
        self.assertEqual(mapping(**own)["EventSourceArn"], own["Queue"])
        self.assertEqual(mapping()["FunctionName"], {"Ref": "Function"})
        self.assertNotEqual(mapping().get("Enabled"), False)

    def test_its_id_is_an_output_so_that_it_can_be_paused(self):
        for stack in deployed(), deployed(**QUEUES["its own queue"]), ledger():
            (name,) = stack.of_type("AWS::Lambda::EventSourceMapping")
            self.assertEqual(stack.outputs["EventSourceMappingId"]["Value"], {"Ref": name})

    def test_lambda_heeds_the_partial_batch_response(self):
        for queue in QUEUES.values():
            self.assertEqual(mapping(**queue).get("FunctionResponseTypes"), ["ReportBatchItemFailures"])

    def test_a_standard_queue_has_the_batch_and_the_window_that_it_is_given(self):
        given = mapping(BatchSize=1000, BatchingWindow=5)
        self.assertEqual((given["BatchSize"], given["MaximumBatchingWindowInSeconds"]), (1000, 5))
        self.assertEqual((mapping()["BatchSize"], mapping()["MaximumBatchingWindowInSeconds"]), (10, 0))

    def test_a_fifo_queue_has_no_window(self):
        for name in "a new FIFO queue", "its own FIFO queue":
            self.assertNotIn("MaximumBatchingWindowInSeconds", mapping(**QUEUES[name]))
        # Rules cannot tell the type of an existing queue.
        own = mapping(**QUEUES["its own FIFO queue"], BatchSize=100, BatchingWindow=1)
        self.assertEqual(own["BatchSize"], 10)
        self.assertNotIn("MaximumBatchingWindowInSeconds", own)
        for size in 1, 2, 5, 10:
            own = mapping(**QUEUES["its own FIFO queue"], BatchSize=size, BatchingWindow=1)
            self.assertEqual(own["BatchSize"], size)

    def test_what_lambda_refuses_is_refused_before_anything_is_made(self):
        self.assertTrue(deployed(BatchSize=20).refused_by())
        self.assertFalse(deployed(BatchSize=20, BatchingWindow=1).refused_by())
        self.assertTrue(deployed(Queue="fifo", BatchingWindow=1).refused_by())
        self.assertTrue(deployed(Queue="fifo", BatchSize=20, BatchingWindow=1).refused_by())
        for size in parameter("BatchSize")["AllowedValues"]:
            self.assertEqual(bool(deployed(BatchSize=size).refused_by()), size > 10, size)
            self.assertEqual(bool(deployed(BatchSize=size, Queue="fifo").refused_by()), size > 10, size)

    def test_its_pollers_have_metrics(self):
        self.assertEqual(mapping()["MetricsConfig"], {"Metrics": ["EventCount"]})

    def test_it_does_not_receive_before_network_and_cache_are_there_nor_after_they_are_deleted(self):
        # CloudFormation deletes in the reverse order of references. A reference to an output is one to its whole stack.
        template = source()["Resources"]
        self.assertEqual(template["Mapping"]["Properties"]["FunctionName"], {"Ref": "Function"})
        function = str(template["Function"]["Properties"])
        for needed in ["Network", "Outputs.SubnetIds"], ["Cache", "Outputs.Url"]:
            self.assertIn(f"{{'Fn::GetAtt': {needed}}}", function)
        routes = deployed().of_type("AWS::EC2::Route").keys() | deployed().of_type("AWS::EC2::SecurityGroupEgress").keys()
        self.assertEqual(routes, {"RouteToNat", "RouteToInternet", "FunctionToCache"})
        self.assertFalse(routes & template.keys())

    def test_no_message_is_filtered_away(self):
        # Lambda deletes messages that a filter does not match, without invoking the function.
        self.assertNotIn("FilterCriteria", mapping())

    def test_concurrency_is_bounded_at_the_mapping_and_not_at_the_function(self):
        self.assertEqual(mapping(MaximumConcurrency=3)["ScalingConfig"], {"MaximumConcurrency": 3})
        self.assertNotIn("ReservedConcurrentExecutions", deployed().properties("Function"))

    def test_that_of_the_ledger_has_the_same_properties(self):
        own = {"EventSourceArn": arn_of("Queue"), "FunctionName": {"Ref": "LedgerFunction"}}
        for kind in "standard", "fifo":
            expected = mapping(MaximumConcurrency=3, Queue=kind) | own
            # Of the dashboard, which the ledger does not have.
            expected.pop("MetricsConfig")
            # The default of Lambda, which the ledger's mapping leaves out.
            self.assertEqual(expected.pop("MaximumBatchingWindowInSeconds", 0), 0)
            self.assertEqual(of_the_ledger(MaximumConcurrency=3, QueueType=kind), expected)

    def test_that_of_the_ledger_returns_batch_item_failures(self):
        for kind in "standard", "fifo":
            self.assertEqual(of_the_ledger(QueueType=kind)["FunctionResponseTypes"], ["ReportBatchItemFailures"])
