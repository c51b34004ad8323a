//! Whose key it is, by the authorizer in front of the function, the same in every retry: the subject of a JWT and not
//! the token, which is refreshed. The client can set any header.

use idempotent_sqs_http::Principal;
use lambda_http::RequestExt;
use lambda_http::http::request::Parts;
use lambda_http::request::RequestContext;
use serde_json::{Map, Value};

/// The caller that API Gateway or the function URL authenticated. `None` without an authorizer, and behind a load
/// balancer, which has none.
pub(crate) fn of(request: &Parts) -> Option<Principal> {
    let id = match request.request_context_ref()? {
        RequestContext::ApiGatewayV2(context) => {
            let authorizer = context.authorizer.as_ref()?;
            let jwt = authorizer.jwt.as_ref().and_then(|jwt| {
                let claim = |name: &str| jwt.claims.get(name).map(String::as_str);
                subject(claim("iss"), claim("sub"))
            });
            let iam = || {
                let iam = authorizer.iam.as_ref()?;
                let identity = iam.cognito_identity.as_ref().and_then(|identity| identity.identity_id.as_deref());
                signer(identity, iam.user_arn.as_deref())
            };
            let custom = || custom(authorizer.fields.get("principalId"));
            jwt.or_else(iam).or_else(custom)
        }
        RequestContext::ApiGatewayV1(context) => {
            let fields = &context.authorizer.fields;
            let jwt = fields.get("claims").and_then(Value::as_object).and_then(|claims: &Map<String, Value>| {
                let claim = |name: &str| claims.get(name).and_then(Value::as_str);
                subject(claim("iss"), claim("sub"))
            });
            let identity = &context.identity;
            let iam = || signer(identity.cognito_identity_id.as_deref(), identity.user_arn.as_deref());
            jwt.or_else(iam).or_else(|| custom(fields.get("principalId")))
        }
        RequestContext::Alb(_) | _ => None,
    };
    id.map(Principal::new)
}

/// The subject of a JWT, which is unique for its issuer.
fn subject(issuer: Option<&str>, subject: Option<&str>) -> Option<String> {
    Some(format!("jwt {} {}", present(issuer)?, present(subject)?))
}

/// The caller that signed the request with IAM credentials.
///
/// A user of an Amazon Cognito identity pool is its identity ID, because all users of a pool may have one ARN: that of the
/// pool's role with the session name `CognitoIdentityCredentials`. Another caller is its ARN, of an IAM user or of a role
/// with a session name. Callers with one session name, such as the environments of a Lambda function, are one principal.
/// A retry with another session name has another principal, and runs again.
fn signer(identity_id: Option<&str>, arn: Option<&str>) -> Option<String> {
    let of_pool = present(identity_id).map(|id| format!("cognito {id}"));
    of_pool.or_else(|| Some(format!("iam {}", present(arn)?)))
}

/// The principal that a Lambda authorizer returned.
fn custom(principal_id: Option<&Value>) -> Option<String> {
    Some(format!("custom {}", present(principal_id?.as_str())?))
}

/// Callers with an empty id would share their keys.
fn present(id: Option<&str>) -> Option<&str> {
    id.filter(|id| !id.is_empty())
}
