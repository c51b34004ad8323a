//! Partitions of AWS, which have their own domains.

/// The domain of AWS's endpoints in this region, as in the partitions of the AWS SDK. A region of a partition that is
/// not known here has the domain of most regions.
pub(crate) fn dns_suffix(region: &str) -> &'static str {
    let of_partition = SUFFIXES.iter().find(|(prefix, _)| region.starts_with(prefix));
    of_partition.map_or("amazonaws.com", |(_, suffix)| suffix)
}

/// How the names of a partition's regions begin, and its domain. `aws-us-gov` has the domain of most regions.
const SUFFIXES: [(&str, &str); 6] = [
    ("cn-", "amazonaws.com.cn"),
    ("eusc-", "amazonaws.eu"),
    ("us-iso-", "c2s.ic.gov"),
    ("us-isob-", "sc2s.sgov.gov"),
    ("eu-isoe-", "cloud.adc-e.uk"),
    ("us-isof-", "csp.hci.ic.gov"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_partition_has_the_domain_that_the_aws_sdk_knows() {
        for (region, suffix) in [
            ("eu-central-1", "amazonaws.com"),
            ("us-gov-west-1", "amazonaws.com"),
            ("cn-northwest-1", "amazonaws.com.cn"),
            ("eusc-de-east-1", "amazonaws.eu"),
            ("us-iso-east-1", "c2s.ic.gov"),
            ("us-isob-east-1", "sc2s.sgov.gov"),
            ("eu-isoe-west-1", "cloud.adc-e.uk"),
            ("us-isof-south-1", "csp.hci.ic.gov"),
        ] {
            assert_eq!(dns_suffix(region), suffix, "{region}");
        }
    }
}
