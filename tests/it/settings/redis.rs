//! Credentials for Redis: a user and password in the URL, an IAM user, or a secret; settings that exclude each other.

use super::{REQUIRED, Settings, errors, read};

const TLS: (&str, &str) = ("REDIS_URL", "rediss://cache.internal");
const USER: (&str, &str) = ("REDIS_IAM_USER", "payments");
const CACHE: (&str, &str) = ("REDIS_IAM_CACHE", "idempotency");
const SERVERLESS: (&str, &str) = ("REDIS_IAM_SERVERLESS", "true");
const SECRET: (&str, &str) = ("REDIS_SECRET_ARN", "arn:aws:secretsmanager:eu-central-1:123456789012:secret:redis");

#[test]
fn credentials_are_in_the_url_or_an_iam_user_or_a_secret() {
    let credentials = |settings: Settings| {
        let source = read(&[REQUIRED, &[TLS], settings]).unwrap().0.redis.credentials;
        source.map(|source| (format!("{source:?}"), source.max_session().map(|session| session.as_secs())))
    };
    assert_eq!(credentials(&[]), None);
    let (iam, session) = credentials(&[USER, CACHE]).expect("IAM needs only a user and a cache");
    assert!(iam.contains(r#"user: ElastiCacheName("payments"), cache: ElastiCacheName("idempotency")"#), "{iam}");
    assert!(iam.contains("serverless: false"), "{iam}");
    assert_eq!(session, Some(39_600));

    let all = [USER, CACHE, SERVERLESS, ("REDIS_CLUSTER", "true"), ("REDIS_IAM_SESSION_SECONDS", "900")];
    let (iam, session) = credentials(&all).unwrap();
    assert!(iam.contains("serverless: true"), "{iam}");
    assert_eq!(session, Some(900));
    let sentinel = ("REDIS_URL", "redis+sentinel://payments@a,b/mymaster?sentinel_password=secret");
    for url in [TLS, ("REDIS_URL", "redis://payments@cache"), sentinel] {
        let (secret, session) = credentials(&[SECRET, url]).unwrap();
        assert!(secret.starts_with("SecretCredentials") && secret.contains(SECRET.1), "{secret}");
        assert_eq!(session, None);
    }
}

#[test]
fn conflicting_or_incomplete_settings_and_iam_without_tls_are_errors() {
    let with_password = ("REDIS_URL", "rediss://:secret@cache");
    let sentinel = ("REDIS_URL", "rediss+sentinel://cache/mymaster");
    let user = "REDIS_URL has a user without a password";
    let cases: [(Settings, &str); 14] = [
        (&[TLS, USER, CACHE, SECRET], "REDIS_SECRET_ARN and REDIS_IAM_USER are both set"),
        (&[with_password, USER, CACHE], "REDIS_URL has a user or a password, and REDIS_IAM_USER replaces them"),
        (&[("REDIS_URL", "rediss://payments@cache"), USER, CACHE], "REDIS_URL has a user or a password"),
        (&[with_password, SECRET], "REDIS_URL has a password, and the secret of REDIS_SECRET_ARN replaces it"),
        (&[("REDIS_URL", "rediss://payments@cache")], user),
        (&[("REDIS_URL", "redis+sentinel://payments@a,b/mymaster?sentinel_password=secret")], user),
        (&[("REDIS_URL", "redis://cache?db=2")], "REDIS_URL is invalid (only a URL for Sentinel has parameters"),
        (&[USER, CACHE], "REDIS_URL does not use TLS"),
        (&[TLS, USER, CACHE, SERVERLESS], "REDIS_IAM_SERVERLESS is true, and serverless caches are clusters"),
        (&[TLS, USER, CACHE, SERVERLESS, ("REDIS_CLUSTER", "yes")], "REDIS_CLUSTER is \"yes\""),
        (&[TLS, USER], "REDIS_IAM_CACHE is missing"),
        (&[TLS, CACHE], "REDIS_IAM_USER is missing"),
        (&[sentinel, USER, CACHE], "REDIS_URL has sentinels, and REDIS_IAM_USER is for ElastiCache"),
        (&[sentinel, ("REDIS_CLUSTER", "true")], "REDIS_CLUSTER is true, and REDIS_URL has sentinels"),
    ];
    for (settings, expected) in cases {
        let errors = errors(&[REQUIRED, settings]);
        assert!(errors.len() == 1 && errors[0].starts_with(expected), "{errors:?}");
    }
}

#[test]
fn settings_of_iam_without_its_user_and_cache_are_errors() {
    let cluster = ("REDIS_CLUSTER", "true");
    for (name, value) in [SERVERLESS, ("REDIS_IAM_SESSION_SECONDS", "900")] {
        for others in [&[][..], &[("REDIS_URL", "redis://cache?db=2")], &[SECRET]] {
            let errors = errors(&[REQUIRED, &[TLS, cluster, (name, value)], others]);
            let expected =
                format!("{name} is set, and REDIS_IAM_USER and REDIS_IAM_CACHE are not: set them, or remove");
            assert!(errors.iter().any(|error| error.starts_with(&expected)), "{others:?}: {errors:?}");
        }
    }
    // Templates set it for caches of any kind.
    read(&[REQUIRED, &[("REDIS_IAM_SERVERLESS", "false")]]).unwrap();
}
