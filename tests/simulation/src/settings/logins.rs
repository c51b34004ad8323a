//! How the function signs in at Redis and at PostgreSQL: docs/identity.md.

use super::written::Written;
use super::{MAX_MS, Read};

const SECRET: &str = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:payments-a1b2c3";

/// Texts that are not the ARN of a secret.
const NOT_SECRETS: [&str; 4] = [
    "payments",
    "arn:aws:secretsmanager:eu-central-1:123456789012:secret:",
    "arn:aws:ssm:eu-central-1:123456789012:secret:payments",
    "arn:aws:secretsmanager::123456789012:secret:payments",
];

/// Texts that are not names in ElastiCache.
const NOT_NAMES: [&str; 4] = ["9a", "-a", "a_b", "payments.abc.cache.amazonaws.com"];

/// The login in a URL.
struct Login {
    text: &'static str,
    has_user: bool,
    has_password: bool,
}

static LOGINS: [Login; 4] = [
    Login { text: "", has_user: false, has_password: false },
    Login { text: "payer@", has_user: true, has_password: false },
    Login { text: ":secret@", has_user: false, has_password: true },
    Login { text: "payer:secret@", has_user: true, has_password: true },
];

/// How a function signs in otherwise than by a URL.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Url,
    Iam,
    Secret,
}

fn source(written: &mut Written) -> Source {
    *written.rng.pick(&[Source::Url, Source::Iam, Source::Secret])
}

/// One that has no error with this source, or any.
fn login(written: &mut Written, is_valid: impl Fn(&Login) -> bool) -> &'static Login {
    let is_any = written.is_invalid();
    let logins: Vec<_> = LOGINS.iter().filter(|login| is_any || is_valid(login)).collect();
    written.rng.pick::<&Login>(&logins)
}

pub(super) fn write_redis(written: &mut Written) {
    const URL: &str = "REDIS_URL";
    written.number("REDIS_TIMEOUT_MS", 1..=MAX_MS, 500, |read| read.config.redis.timeout.as_millis().to_string());
    let source = source(written);
    let (uses_iam, uses_secret) = (source == Source::Iam, source == Source::Secret || written.is_invalid());
    let cluster = written.choice("REDIS_CLUSTER", ["false", "true"], |read| read.config.redis.cluster.to_string());
    let is_valid = |login: &Login| match source {
        Source::Iam => login.text.is_empty(),
        Source::Secret => !login.has_password,
        Source::Url => !login.has_user || login.has_password,
    };
    let login = login(written, is_valid);
    let uses_tls = (uses_iam && !written.is_invalid()) || written.rng.happens(500);
    let may_use_sentinel = !uses_iam && !cluster || written.is_invalid();
    let uses_sentinel = may_use_sentinel && written.rng.happens(300);
    let scheme = if uses_tls { "rediss" } else { "redis" };
    let address = if uses_sentinel { "a:26379,b/payments" } else { "cache:6379" };
    let kind = if uses_sentinel { "+sentinel" } else { "" };
    let url = format!("{scheme}{kind}://{}{address}", login.text);
    let is_url = !written.is_invalid();
    if is_url {
        written.set(URL, &url);
        let read = |read: &Read| {
            let url = &read.config.redis.url;
            format!("{:?}", (url.uses_tls(), url.uses_sentinel(), url.user().is_some(), url.has_password()))
        };
        let expected = (uses_tls, uses_sentinel, login.has_user, login.has_password);
        written.expect(URL, read, format!("{expected:?}"));
    } else {
        written.set(URL, "http://cache:6379");
        written.error("REDIS_URL is invalid");
    }
    let has_iam = write_iam(written, uses_iam, cluster);
    let arn = if uses_secret { write_secret(written, "REDIS_SECRET_ARN") } else { None };
    written.expect(
        "the login of Redis",
        |read| read.config.redis.credentials.is_some().to_string(),
        has_iam || arn.is_some(),
    );
    let has_secret = written.has("REDIS_SECRET_ARN");
    let uses_iam = written.has("REDIS_IAM_USER") || written.has("REDIS_IAM_CACHE");
    let errors = [
        (uses_iam && has_secret, "REDIS_SECRET_ARN and REDIS_IAM_USER are both set"),
        (is_url && cluster && uses_sentinel, "REDIS_CLUSTER is true, and REDIS_URL has sentinels"),
        (is_url && uses_iam && uses_sentinel, "REDIS_URL has sentinels, and REDIS_IAM_USER is for ElastiCache"),
        (is_url && uses_iam && !uses_sentinel && !uses_tls, "REDIS_URL does not use TLS, which ElastiCache requires"),
        (
            is_url && uses_iam && (login.has_user || login.has_password),
            "REDIS_URL has a user or a password, and REDIS_IAM_USER replaces them",
        ),
        (
            is_url && login.has_user && !login.has_password && !uses_iam && !has_secret,
            "REDIS_URL has a user without a password",
        ),
        (is_url && has_secret && login.has_password, "REDIS_URL has a password, and the secret of REDIS_SECRET_ARN"),
    ];
    errors.into_iter().filter(|(is_wrong, _)| *is_wrong).for_each(|(_, error)| written.error(error));
}

/// Returns whether the function signs in by IAM. An invalid `REDIS_CLUSTER` has an error of its own.
fn write_iam(written: &mut Written, uses_iam: bool, cluster: bool) -> bool {
    const SERVERLESS: &str = "REDIS_IAM_SERVERLESS";
    const SESSION: &str = "REDIS_IAM_SESSION_SECONDS";
    let signs_in = uses_iam && write_user(written);
    let has_iam = written.has("REDIS_IAM_USER") || written.has("REDIS_IAM_CACHE");
    let without = |name| format!("{name} is set, and REDIS_IAM_USER and REDIS_IAM_CACHE are not");
    if has_iam || written.is_invalid() {
        written.unread_number(SESSION, 1..=43_200, 39_600);
        if !has_iam && written.has(SESSION) {
            written.error(without(SESSION));
        }
    }
    let may_be_serverless = has_iam && cluster || written.is_invalid();
    if may_be_serverless && written.unread_choice(SERVERLESS, ["false", "true"]) {
        if !has_iam {
            written.error(without(SERVERLESS));
        }
        let is_invalid = written
            .variables()
            .get("REDIS_CLUSTER")
            .is_some_and(|value| !["", "true", "false"].contains(&value.trim()));
        if !cluster && !is_invalid {
            written.error("REDIS_IAM_SERVERLESS is true, and serverless caches are clusters");
        }
    }
    signs_in
}

/// Returns whether the user and its cache are valid.
fn write_user(written: &mut Written) -> bool {
    let [user, cache] = ["REDIS_IAM_USER", "REDIS_IAM_CACHE"]
        .map(|name| written.required(name, &["payer-1", "A"], &NOT_NAMES).is_some());
    if !written.has("REDIS_IAM_USER") && !written.has("REDIS_IAM_CACHE") {
        written.forgive("REDIS_IAM_USER is missing: set it to ");
        written.forgive("REDIS_IAM_CACHE is missing: set it to ");
    }
    user && cache
}

fn write_secret(written: &mut Written, name: &'static str) -> Option<&'static str> {
    let is_invalid = written.is_invalid();
    let value = if is_invalid { *written.rng.pick(&NOT_SECRETS) } else { SECRET };
    written.set(name, value);
    if is_invalid {
        written.error(format!("{name} is invalid"));
    }
    (!is_invalid).then_some(value)
}

pub(super) fn write_postgres(written: &mut Written) {
    const URL: &str = "DATABASE_URL";
    const TIMEOUT: &str = "DATABASE_TIMEOUT_MS";
    written.number(TIMEOUT, 1..=MAX_MS, 2000, |read| read.inbox.database.timeout.as_millis().to_string());
    let source = source(written);
    let is_valid = |login: &Login| match source {
        Source::Iam => login.has_user && !login.has_password,
        Source::Secret => !login.has_password,
        Source::Url => true,
    };
    let login = login(written, is_valid);
    let mode = if source != Source::Iam || written.is_invalid() {
        *written.rng.pick(&["", "?sslmode=disable", "?sslmode=verify-full"])
    } else {
        ""
    };
    let hosts =
        if source != Source::Iam || written.is_invalid() { *written.rng.pick(&["db", "db,other"]) } else { "db" };
    let is_url = !written.is_invalid();
    if is_url {
        written.set(URL, &format!("postgres://{}{hosts}/payments{mode}", login.text));
        let read = |read: &Read| {
            let url = &read.inbox.database.url;
            format!("{:?}", (url.user().is_some(), url.has_password(), url.uses_tls(), url.has_one_host()))
        };
        let expected = (login.has_user, login.has_password, mode != "?sslmode=disable", hosts == "db");
        written.expect(URL, read, format!("{expected:?}"));
    } else {
        written.set(URL, "mysql://db/payments");
        written.error("DATABASE_URL is invalid");
    }
    let iam = source == Source::Iam;
    if iam {
        written.set("DATABASE_IAM", "true");
    }
    let arn = (source == Source::Secret || written.is_invalid())
        .then(|| write_secret(written, "DATABASE_SECRET_ARN"))
        .flatten();
    let has_secret = written.has("DATABASE_SECRET_ARN");
    let credentials = |read: &Read| read.inbox.database.credentials.is_some().to_string();
    written.expect("the login of PostgreSQL", credentials, iam || arn.is_some());
    let errors = [
        (iam && has_secret, "DATABASE_SECRET_ARN and DATABASE_IAM are both set"),
        (is_url && iam && login.has_password, "DATABASE_URL has a password, and the token"),
        (is_url && iam && mode == "?sslmode=disable", "DATABASE_URL does not use TLS"),
        (is_url && iam && !login.has_user, "DATABASE_URL has no user"),
        (is_url && iam && hosts != "db", "DATABASE_URL does not have exactly one host"),
        (is_url && !iam && has_secret && login.has_password, "DATABASE_URL has a password, and the secret"),
    ];
    errors.into_iter().filter(|(is_wrong, _)| *is_wrong).for_each(|(_, error)| written.error(error));
}
