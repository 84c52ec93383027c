//! Signing in to Swift: tokens of Keystone (version 3) and of Swift's own version 1.

use cenote_model::ErrorKind;
use http::{HeaderMap, Method, Request, StatusCode};
use opendal_core::Buffer;
use serde_json::{Value, json};

use super::credentials::Secrets;
use super::http::{Http, HttpFailure};
use crate::object::service::{Answer, Refusal};

/// A time-limited grant by the service.
pub(super) struct Grant {
    pub token: String,
    /// URL of the account.
    pub storage_url: String,
}

fn denied(why: impl Into<String>) -> Refusal {
    Refusal::new(ErrorKind::PermissionDenied, why)
}

/// Requests a token. `endpoint`: where to sign in, if the credentials do not say.
pub(super) fn sign_in(http: &Http, endpoint: Option<&str>, region: Option<&str>, secrets: &Secrets) -> Answer<Grant> {
    if let (Some(token), Some(storage_url)) = (secrets.get("auth_token"), secrets.get("storage_url")) {
        return Ok(Grant { token, storage_url });
    }
    let given = endpoint.map(str::to_owned).or_else(|| secrets.get("auth_url")).or_else(|| secrets.get("auth"));
    let Some(url) = given.map(|url| url.trim_end_matches('/').to_owned()) else {
        return Err(denied("it is not said where to sign in: no option `endpoint`, no auth_url"));
    };
    if url.ends_with("/v1.0") || url.ends_with("/v1") {
        version_1(http, &url, secrets)
    } else {
        version_3(http, &url, region, secrets)
    }
}

fn ask(http: &Http, request: http::Result<Request<Buffer>>) -> Answer<(HeaderMap, bytes::Bytes)> {
    let request = request.map_err(|error| Refusal::new(ErrorKind::InvalidInput, format!("signing in: {error}")))?;
    let (parts, body) = http
        .ask_well(request)
        .map_err(|said| match said {
            HttpFailure::Status(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => {
                denied(format!("signing in: {said}"))
            }
            HttpFailure::Status(status, _) if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS => {
                Refusal::new(ErrorKind::Io, format!("signing in: {said}"))
            }
            _ => Refusal::passing(format!("signing in: {said}")),
        })?
        .into_parts();
    Ok((parts.headers, body))
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

fn version_1(http: &Http, url: &str, secrets: &Secrets) -> Answer<Grant> {
    let (Some(user), Some(key)) = (secrets.get("user"), secrets.get("key")) else {
        return Err(denied("user and key are needed to sign in"));
    };
    let request = Request::get(url).header("X-Auth-User", user).header("X-Auth-Key", key).body(Buffer::new());
    let (headers, _) = ask(http, request)?;
    let token = header(&headers, "X-Auth-Token").or_else(|| header(&headers, "X-Storage-Token"));
    match (token, header(&headers, "X-Storage-Url")) {
        (Some(token), Some(storage_url)) => Ok(Grant { token, storage_url }),
        _ => Err(denied("the service granted no token")),
    }
}

fn version_3(http: &Http, url: &str, region: Option<&str>, secrets: &Secrets) -> Answer<Grant> {
    let get = |name: &str| secrets.get(name);
    let domain = |id: &str, name: &str| match (get(id), get(name)) {
        (Some(id), _) => json!({ "id": id }),
        (None, Some(name)) => json!({ "name": name }),
        (None, None) => json!({ "id": "default" }),
    };
    let body = if let (Some(id), Some(secret)) =
        (get("application_credential_id"), get("application_credential_secret"))
    {
        let credential = json!({ "id": id, "secret": secret });
        json!({ "auth": { "identity": { "methods": ["application_credential"], "application_credential": credential } } })
    } else {
        let (Some(user), Some(password)) = (get("username"), get("password")) else {
            return Err(denied("username and password, or an application credential, are needed to sign in"));
        };
        let user = json!({
            "name": user, "password": password, "domain": domain("user_domain_id", "user_domain_name"),
        });
        let scope = match (get("project_id"), get("project_name")) {
            (Some(id), _) => json!({ "project": { "id": id } }),
            (None, Some(name)) => {
                json!({ "project": { "name": name, "domain": domain("project_domain_id", "project_domain_name") } })
            }
            (None, None) => return Err(denied("project_name or project_id is needed to sign in")),
        };
        let identity = json!({ "methods": ["password"], "password": { "user": user } });
        json!({ "auth": { "identity": identity, "scope": scope } })
    };
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("{url}/auth/tokens"))
        .header("Content-Type", "application/json")
        .body(Buffer::from(body.to_string()));
    let (headers, answer) = ask(http, request)?;
    let Some(token) = header(&headers, "X-Subject-Token") else {
        return Err(denied("the service granted no token"));
    };
    let region = region.map(str::to_owned).or_else(|| get("region_name"));
    let catalog: Value = serde_json::from_slice(&answer).unwrap_or_default();
    let storage_url = get("storage_url").or_else(|| storage_of(&catalog, region.as_deref()));
    let Some(storage_url) = storage_url else {
        let where_ = region.map_or_else(String::new, |region| format!(" in region {region}"));
        return Err(Refusal::new(ErrorKind::NotFound, format!("the catalogue has no object store{where_}")));
    };
    Ok(Grant { token, storage_url: storage_url.trim_end_matches('/').to_owned() })
}

/// The public URL of the object store.
fn storage_of(answer: &Value, region: Option<&str>) -> Option<String> {
    let services = answer["token"]["catalog"].as_array()?;
    let store = services.iter().find(|service| service["type"] == "object-store")?;
    let fits = |endpoint: &&Value| {
        let there = [&endpoint["region"], &endpoint["region_id"]];
        endpoint["interface"] == "public" && region.is_none_or(|region| there.iter().any(|at| **at == region))
    };
    store["endpoints"].as_array()?.iter().find(fits)?["url"].as_str().map(str::to_owned)
}
