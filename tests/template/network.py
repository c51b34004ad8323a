"""The network: VPC, subnets, security groups, endpoints and the NAT gateway."""

import unittest

from template import MAIN, NESTED, NETWORKS, QUEUES, RECORDS, arn_of, combinations, deployed

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
        (
            rule.get("CidrIp") or rule.get("CidrIpv6") or rule["DestinationSecurityGroupId"]["Ref"],
            int(rule["FromPort"]),
            int(rule["ToPort"]),
        )
        for rule in [*inline, *of_function]
    }


class Network(unittest.TestCase):
    def test_the_function_is_where_its_cache_is(self):
        for kind in "", "serverless":
            stack = deployed(CacheNodeType=kind)
            subnets = ["${PrivateSubnetA}", "${PrivateSubnetB}"]
            config = stack.properties("Function")["VpcConfig"]
            self.assertEqual(config, {"SubnetIds": subnets, "SecurityGroupIds": [{"Ref": "FunctionSecurityGroup"}]})
            cache = stack.properties("ServerlessCache" if kind else "CacheSubnets")
            self.assertEqual(cache["SubnetIds"], subnets)

    def test_its_subnets_are_in_two_zones(self):
        zones = [deployed().properties(f"PrivateSubnet{name}")["AvailabilityZone"] for name in "AB"]
        self.assertNotEqual(*zones)

    def test_its_zones_are_those_that_are_given(self):
        stack = deployed(ZoneIds="euc1-az2,euc1-az3")
        for name, zone in {"A": "euc1-az2", "B": "euc1-az3"}.items():
            subnet = stack.properties(f"PrivateSubnet{name}")
            self.assertEqual(subnet["AvailabilityZoneId"], zone)
            self.assertNotIn("AvailabilityZone", subnet)
        self.assertTrue(deployed(ZoneIds="euc1-az2,euc1-az3", **OWN_VPC).refused_by())

    def test_its_zones_have_lambda_in_the_region_where_one_has_not(self):
        pseudo = {"AWS::Region": "us-east-1"}
        zones = [deployed(pseudo=pseudo).properties(f"PrivateSubnet{name}")["AvailabilityZoneId"] for name in "AB"]
        self.assertEqual(zones, ["use1-az1", "use1-az2"])

    def test_the_nat_gateway_is_in_the_zone_of_a_private_subnet(self):
        zone = deployed().properties("PublicSubnet")["AvailabilityZone"]
        self.assertEqual(zone, arn_of("PrivateSubnetA", "AvailabilityZone"))

    def test_a_vpc_of_ones_own_is_used_and_left_as_it_is(self):
        for records in RECORDS.values():
            stack = deployed(**OWN_VPC, **records)
            config = stack.properties("Function")["VpcConfig"]
            self.assertEqual(config["SubnetIds"], OWN_VPC["SubnetIds"].split(","))
            self.assertEqual(config["SecurityGroupIds"], ["${FunctionSecurityGroup}", OWN_VPC["SecurityGroupIds"]])
            # Its subnets have their own way out.
            self.assertEqual(stack.of_type("AWS::EC2::VPCEndpoint"), {})
            kinds = {r["Type"].removeprefix("AWS::EC2::") for r in stack.resources.values() if "::EC2::" in r["Type"]}
            self.assertFalse(kinds & {"VPC", "Subnet", "Route", "RouteTable", "NatGateway", "InternetGateway", "EIP"})
            for group in stack.of_type("AWS::EC2::SecurityGroup").values():
                self.assertEqual(group["VpcId"], OWN_VPC["VpcId"])

    def test_a_redis_in_a_vpc_needs_a_group_that_lets_the_function_out_to_it(self):
        without = {name: value for name, value in OWN_VPC.items() if name != "SecurityGroupIds"}
        self.assertTrue(deployed(**OWN_REDIS, **without).refused_by())
        # The function reaches a cache of the stack by its own group.
        self.assertFalse(deployed(**without).refused_by())

    def test_with_a_redis_of_ones_own_and_no_vpc_it_is_in_none(self):
        stack = deployed(**OWN_REDIS)
        self.assertNotIn("VpcConfig", stack.properties("Function"))
        self.assertFalse([r for r in stack.resources.values() if "::EC2::" in r["Type"]])

    def test_the_cache_lets_in_the_function_and_operators_only(self):
        for kind, last in {"": 6379, "serverless": 6380}.items():
            stack = deployed(CacheNodeType=kind)
            group = stack.properties("CacheSecurityGroup")
            self.assertNotIn("SecurityGroupIngress", group)
            self.assertEqual([rule["CidrIp"] for rule in group["SecurityGroupEgress"]], ["127.0.0.1/32"])
            rules = stack.of_type("AWS::EC2::SecurityGroupIngress")
            sources = {name: rule["SourceSecurityGroupId"]["Ref"] for name, rule in rules.items()}
            admitted = {"CacheFromFunction": "FunctionSecurityGroup", "CacheFromOperators": "OperatorSecurityGroup"}
            self.assertEqual(sources, admitted)
            for rule in rules.values():
                self.assertEqual(rule["GroupId"], {"Ref": "CacheSecurityGroup"})
                self.assertEqual((rule["FromPort"], rule["ToPort"]), (6379, last))

    def test_operators_reach_the_cache_only(self):
        group = deployed().properties("OperatorSecurityGroup")
        self.assertNotIn("SecurityGroupIngress", group)
        (rule,) = group["SecurityGroupEgress"]
        self.assertEqual(rule["DestinationSecurityGroupId"], {"Ref": "CacheSecurityGroup"})

    def test_the_function_has_no_inbound_traffic(self):
        self.assertNotIn("SecurityGroupIngress", deployed().properties("FunctionSecurityGroup"))

    def test_the_function_reaches_its_cache_aws_and_the_webhook_only(self):
        cache, https = ("CacheSecurityGroup", 6379, 6379), (ANYWHERE, 443, 443)
        self.assertEqual(ways_out(deployed()), {cache, https})
        for url, port in {
            "http://example.com/hook": 80,
            "http://example.com": 80,
            "https://example.com:8443/hook": 8443,
            "http://example.com:8080": 8080,
        }.items():
            self.assertEqual(ways_out(deployed(TargetUrl=url)), {cache, https, (ANYWHERE, port, port)}, url)
        self.assertIn(("CacheSecurityGroup", 6379, 6380), ways_out(deployed(CacheNodeType="serverless")))

    def test_a_url_whose_port_cannot_be_read_is_refused(self):
        for url in "https://user@example.com/", "https://[::1]:80/", "https://example.com?x", "ftp://example.com", "https://":
            with self.assertRaises(AssertionError, msg=url):
                deployed(TargetUrl=url)

    def test_it_reaches_sqs_by_an_endpoint_only_where_there_is_no_other_way(self):
        own, without = QUEUES["its own queue"], "its own queue without dead letters"
        new = [("sqs:ChangeMessageVisibility", arn_of("MessageQueue")), ("sqs:SendMessage", arn_of("DeadLetterQueue"))]
        others = [("sqs:ChangeMessageVisibility", own["Queue"]), ("sqs:SendMessage", own["DeadLetterQueueArn"])]
        for name in "no VPC of its own", "its own VPC":
            for queue, rights in {"a new queue": new, "its own queue": others, without: others[:1]}.items():
                stack = deployed(**NETWORKS[name], **QUEUES[queue], Egress="endpoint")
                self.assertEqual(stack.of_type("AWS::EC2::NatGateway"), {})
                endpoint = stack.properties("SqsInterfaceEndpoint")
                self.assertEqual(endpoint["VpcEndpointType"], "Interface")
                subnets = stack.properties("Function")["VpcConfig"]["SubnetIds"]
                self.assertEqual([s["Ref"] if isinstance(s, dict) else s.strip("${}") for s in endpoint["SubnetIds"]],
                                 [s.strip("${}") for s in subnets])
                # Private DNS would route all SQS traffic of the VPC to this endpoint, whose policy denies most of it.
                self.assertIs(endpoint["PrivateDnsEnabled"], False)
                self.assertTrue(stack.variables()["AWS_ENDPOINT_URL_SQS"].startswith("https://"))
                statements = endpoint["PolicyDocument"]["Statement"]
                self.assertEqual([(s["Action"], s["Resource"]) for s in statements], rights)
                for statement in statements:
                    self.assertEqual(statement["Condition"], {"ArnEquals": {"aws:PrincipalArn": arn_of("FunctionRole")}})

    def test_services_have_the_names_of_their_partition(self):
        # https://docs.aws.amazon.com/vpc/latest/privatelink/aws-services-privatelink-support.html
        names = {
            ("aws", "eu-central-1"): "com.amazonaws.eu-central-1.sqs",
            ("aws-us-gov", "us-gov-west-1"): "com.amazonaws.us-gov-west-1.sqs",
            ("aws-cn", "cn-north-1"): "cn.com.amazonaws.cn-north-1.sqs",
        }
        for (partition, region), name in names.items():
            stack = deployed(Egress="endpoint", pseudo={"AWS::Partition": partition, "AWS::Region": region})
            self.assertEqual(stack.properties("SqsInterfaceEndpoint")["ServiceName"], name)
            self.assertEqual(stack.properties("S3GatewayEndpoint")["ServiceName"], f"com.amazonaws.{region}.s3")

    def test_no_partition_is_written_out(self):
        for path in [MAIN, *NESTED]:
            for line in path.read_text().splitlines():
                if "Pattern" not in line and not line.strip().startswith("#"):
                    self.assertNotRegex(line, r"arn:aws[:-]|amazonaws\.com/", path.name)

    def test_the_endpoint_lets_in_the_function_only(self):
        (rule,) = deployed(Egress="endpoint").properties("SqsSecurityGroup")["SecurityGroupIngress"]
        self.assertEqual(rule["SourceSecurityGroupId"], {"Ref": "FunctionSecurityGroup"})
        self.assertEqual((rule["FromPort"], rule["ToPort"]), (443, 443))

    def test_there_is_no_endpoint_beside_a_nat_gateway(self):
        for name, parameters in combinations():
            stack = deployed(**parameters)
            interfaces = [e for e in stack.of_type("AWS::EC2::VPCEndpoint").values() if e["VpcEndpointType"] == "Interface"]
            self.assertLessEqual(len(interfaces) + len(stack.of_type("AWS::EC2::NatGateway")), 1, name)
            self.assertEqual(bool(interfaces), "AWS_ENDPOINT_URL_SQS" in stack.variables(), name)

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

    def test_ipv6_needs_no_nat_gateway(self):
        stack = deployed(Egress="ipv6")
        self.assertFalse(stack.of_type("AWS::EC2::NatGateway") | stack.of_type("AWS::EC2::InternetGateway"))
        (route,) = stack.of_type("AWS::EC2::Route").values()
        self.assertEqual(route["RouteTableId"], {"Ref": "PrivateRoutes"})
        self.assertEqual(route["DestinationIpv6CidrBlock"], "::/0")
        self.assertEqual(route["EgressOnlyInternetGatewayId"], {"Ref": "EgressOnlyGateway"})
        self.assertIs(stack.properties("Function")["VpcConfig"]["Ipv6AllowedForDualStack"], True)
        # The SDK's default endpoints have no IPv6 address.
        self.assertEqual(stack.variables()["AWS_USE_DUALSTACK_ENDPOINT"], "true")
        self.assertIn(("::/0", 443, 443), ways_out(stack))
        self.assertIn(("::/0", 8443, 8443), ways_out(deployed(Egress="ipv6", TargetUrl="https://example.com:8443/")))
        self.assertNotIn("AWS_USE_DUALSTACK_ENDPOINT", deployed().variables())
        self.assertTrue(deployed(Egress="ipv6", **OWN_VPC).refused_by())

    def test_an_endpoint_needs_no_nat_gateway(self):
        stack = deployed(Egress="endpoint")
        self.assertFalse(stack.of_type("AWS::EC2::NatGateway") | stack.of_type("AWS::EC2::InternetGateway"))
        self.assertEqual(stack.of_type("AWS::EC2::Route"), {})

    def test_objects_in_s3_do_not_pass_the_nat_gateway(self):
        endpoint = deployed().properties("S3GatewayEndpoint")
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
