"""The network: VPC, subnets, security groups, endpoints and the NAT gateway."""

import unittest

from template import NETWORKS, QUEUES, RECORDS, arn_of, combinations, deployed

OWN_VPC = NETWORKS["its own VPC"]
OWN_REDIS = RECORDS["its own Redis"]
ANYWHERE = "0.0.0.0/0"


def ways_out(stack):
    """Where the function's security group lets it go: to whom, and by which ports."""
    inline = stack.properties("FunctionSecurityGroup")["SecurityGroupEgress"]
    apart = stack.of_type("AWS::EC2::SecurityGroupEgress").values()
    of_function = [rule for rule in apart if rule["GroupId"] == {"Ref": "FunctionSecurityGroup"}]
    assert len(of_function) == len(apart)
    return {
        (rule.get("CidrIp") or rule["DestinationSecurityGroupId"]["Ref"], rule["FromPort"], rule["ToPort"])
        for rule in [*inline, *of_function]
    }


class Network(unittest.TestCase):
    def test_the_function_is_where_its_cache_is(self):
        for kind in "node-based", "serverless":
            stack = deployed(CacheKind=kind)
            subnets = [{"Ref": "PrivateSubnetA"}, {"Ref": "PrivateSubnetB"}]
            config = stack.properties("Function")["VpcConfig"]
            self.assertEqual(config, {"SubnetIds": subnets, "SecurityGroupIds": [{"Ref": "FunctionSecurityGroup"}]})
            cache = stack.properties("CacheSubnets" if kind == "node-based" else "ServerlessCache")
            self.assertEqual(cache["SubnetIds"], subnets)

    def test_its_subnets_are_in_two_zones(self):
        zones = [deployed().properties(f"PrivateSubnet{name}")["AvailabilityZone"] for name in "AB"]
        self.assertNotEqual(*zones)

    def test_a_vpc_of_ones_own_is_used_and_left_as_it_is(self):
        for records in RECORDS.values():
            stack = deployed(**OWN_VPC, **records)
            config = stack.properties("Function")["VpcConfig"]
            self.assertEqual(config["SubnetIds"], OWN_VPC["SubnetIds"].split(","))
            self.assertEqual(config["SecurityGroupIds"], ["${FunctionSecurityGroup}", OWN_VPC["SecurityGroupIds"]])
            kinds = {r["Type"].removeprefix("AWS::EC2::") for r in stack.resources.values() if "::EC2::" in r["Type"]}
            self.assertFalse(kinds & {"VPC", "Subnet", "Route", "RouteTable", "NatGateway", "InternetGateway", "EIP"})
            for group in stack.of_type("AWS::EC2::SecurityGroup").values():
                self.assertEqual(group["VpcId"], OWN_VPC["VpcId"])

    def test_with_a_redis_of_ones_own_and_no_vpc_it_is_in_none(self):
        stack = deployed(**OWN_REDIS)
        self.assertNotIn("VpcConfig", stack.properties("Function"))
        self.assertFalse([r for r in stack.resources.values() if "::EC2::" in r["Type"]])

    def test_the_cache_lets_in_the_function_only(self):
        for kind, last in {"node-based": 6379, "serverless": 6380}.items():
            stack = deployed(CacheKind=kind)
            group = stack.properties("CacheSecurityGroup")
            self.assertNotIn("SecurityGroupIngress", group)
            self.assertEqual([rule["CidrIp"] for rule in group["SecurityGroupEgress"]], ["127.0.0.1/32"])
            (rule,) = stack.of_type("AWS::EC2::SecurityGroupIngress").values()
            self.assertEqual(rule["GroupId"], {"Ref": "CacheSecurityGroup"})
            self.assertEqual(rule["SourceSecurityGroupId"], {"Ref": "FunctionSecurityGroup"})
            self.assertEqual((rule["FromPort"], rule["ToPort"]), (6379, last))

    def test_operators_come_from_their_security_group(self):
        stack = deployed(OperatorSecurityGroupId="sg-0123456789abcdef0")
        rule = stack.properties("CacheFromOperators")
        self.assertEqual(rule["SourceSecurityGroupId"], "sg-0123456789abcdef0")
        self.assertEqual(rule["GroupId"], {"Ref": "CacheSecurityGroup"})

    def test_the_function_has_no_inbound_traffic(self):
        self.assertNotIn("SecurityGroupIngress", deployed().properties("FunctionSecurityGroup"))

    def test_the_function_reaches_its_cache_sqs_and_the_webhook_only(self):
        expected = {("CacheSecurityGroup", 6379, 6379), ("SqsSecurityGroup", 443, 443), (ANYWHERE, 443, 443)}
        self.assertEqual(ways_out(deployed()), expected)
        elsewhere = deployed(TargetPort=8443)
        self.assertEqual(ways_out(elsewhere), expected - {(ANYWHERE, 443, 443)} | {(ANYWHERE, 8443, 8443)})
        self.assertIn(("CacheSecurityGroup", 6379, 6380), ways_out(deployed(CacheKind="serverless")))

    def test_it_reaches_aws_where_the_webhook_has_another_port(self):
        for needs in (
            {"ResultBucket": "results"},
            {"PayloadObjectArns": ["arn:aws:s3:::payloads/*"]},
            {"SqsEndpoint": "false"},
            {"SqsEndpoint": "false", "VisibilityBackoff": "false"},
            OWN_VPC | RECORDS["its own Redis with a secret"],
        ):
            out = ways_out(deployed(TargetPort=8443, **needs))
            self.assertTrue({(ANYWHERE, 443, 443), (ANYWHERE, 8443, 8443)} <= out, needs)

    def test_it_has_a_way_to_sqs_of_its_own(self):
        for network in NETWORKS.values():
            own, without = QUEUES["its own queue"], "its own queue without dead letters"
            new = [("sqs:ChangeMessageVisibility", arn_of("Queue")), ("sqs:SendMessage", arn_of("DeadLetterQueue"))]
            others = [("sqs:ChangeMessageVisibility", own["QueueArn"]), ("sqs:SendMessage", own["DeadLetterQueueArn"])]
            for queue, rights in {"a new queue": new, "its own queue": others, without: others[:1]}.items():
                stack = deployed(**network, **QUEUES[queue])
                endpoint = stack.properties("SqsInterfaceEndpoint")
                self.assertEqual(endpoint["VpcEndpointType"], "Interface")
                self.assertEqual(endpoint["ServiceName"], "com.amazonaws.eu-central-1.sqs")
                self.assertEqual(endpoint["SubnetIds"], stack.properties("Function")["VpcConfig"]["SubnetIds"])
                # Private DNS would route all SQS traffic of the VPC to this endpoint, whose policy denies most of it.
                self.assertIs(endpoint["PrivateDnsEnabled"], False)
                self.assertTrue(stack.variables()["AWS_ENDPOINT_URL_SQS"].startswith("https://"))
                statements = endpoint["PolicyDocument"]["Statement"]
                self.assertEqual([(s["Action"], s["Resource"]) for s in statements], rights)
                for statement in statements:
                    self.assertEqual(statement["Condition"], {"ArnEquals": {"aws:PrincipalArn": arn_of("FunctionRole")}})

    def test_the_endpoint_allows_only_what_the_function_calls(self):
        (statement,) = deployed(VisibilityBackoff="false").properties("SqsInterfaceEndpoint")["PolicyDocument"]["Statement"]
        self.assertEqual((statement["Action"], statement["Resource"]), ("sqs:SendMessage", arn_of("DeadLetterQueue")))

    def test_the_endpoint_lets_in_the_function_only(self):
        (rule,) = deployed().properties("SqsSecurityGroup")["SecurityGroupIngress"]
        self.assertEqual(rule["SourceSecurityGroupId"], {"Ref": "FunctionSecurityGroup"})
        self.assertEqual((rule["FromPort"], rule["ToPort"]), (443, 443))

    def test_there_is_no_endpoint_where_none_is_needed(self):
        # Without a dead-letter queue and without a back-off, the function does not call SQS.
        quiet = QUEUES["its own queue without dead letters"] | {"VisibilityBackoff": "false"}
        for parameters in {"SqsEndpoint": "false"}, quiet, OWN_REDIS:
            stack = deployed(**parameters)
            self.assertNotIn("SqsInterfaceEndpoint", stack.resources)
            self.assertNotIn("AWS_ENDPOINT_URL_SQS", stack.variables())

    def test_it_reaches_a_webhook_on_the_internet_by_a_nat_gateway(self):
        stack = deployed()
        for name, way in {
            "RouteToNat": ("PrivateRoutes", {"NatGatewayId": {"Ref": "NatGatewayOfVpc"}}),
            "RouteToInternet": ("PublicRoutes", {"GatewayId": {"Ref": "InternetGateway"}}),
        }.items():
            table, target = way
            route = {"RouteTableId": {"Ref": table}, "DestinationCidrBlock": ANYWHERE} | target
            self.assertEqual(stack.properties(name), route)
        self.assertEqual(stack.properties("NatGatewayOfVpc")["SubnetId"], {"Ref": "PublicSubnet"})
        tables = {a["SubnetId"]["Ref"]: a["RouteTableId"]["Ref"] for a in associations(stack)}
        private = {"PrivateSubnetA": "PrivateRoutes", "PrivateSubnetB": "PrivateRoutes"}
        self.assertEqual(tables, private | {"PublicSubnet": "PublicRoutes"})

    def test_the_nat_gateway_can_be_left_out(self):
        stack = deployed(NatGateway="false")
        self.assertFalse(stack.of_type("AWS::EC2::NatGateway") | stack.of_type("AWS::EC2::InternetGateway"))
        self.assertEqual(stack.of_type("AWS::EC2::Route"), {})

    def test_results_and_payloads_do_not_pass_the_nat_gateway(self):
        self.assertNotIn("S3GatewayEndpoint", deployed().resources)
        endpoint = deployed(ResultBucket="results").properties("S3GatewayEndpoint")
        self.assertEqual(endpoint["RouteTableIds"], [{"Ref": "PrivateRoutes"}])

    def test_half_a_vpc_is_refused(self):
        self.assertTrue(deployed(VpcId=OWN_VPC["VpcId"]).refused_by())
        self.assertTrue(deployed(SubnetIds=OWN_VPC["SubnetIds"]).refused_by())
        self.assertTrue(deployed(SecurityGroupIds=OWN_VPC["SecurityGroupIds"]).refused_by())

    def test_no_combination_opens_anything_to_the_world(self):
        for name, parameters in combinations():
            stack = deployed(**parameters)
            inline = [g.get("SecurityGroupIngress", []) for g in stack.of_type("AWS::EC2::SecurityGroup").values()]
            rules = [*stack.of_type("AWS::EC2::SecurityGroupIngress").values(), *sum(inline, [])]
            for rule in rules:
                self.assertFalse({"CidrIp", "CidrIpv6"} & rule.keys(), name)


def associations(stack):
    return stack.of_type("AWS::EC2::SubnetRouteTableAssociation").values()
