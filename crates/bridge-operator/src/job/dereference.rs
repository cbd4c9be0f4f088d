//! Reads what a job refers to. Secrets are read one by one by name and only while a pod has to be made; of their content
//! nothing is kept but which keys there are.

use bridge_api::conditions as terms;
use bridge_core::plan::SecretNeed;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

use super::decide::Problem;

/// Looks whether everything is there that a job's pod mounts. The outer error says that nobody can tell.
pub async fn references(
    client: &Client,
    namespace: &str,
    needs: &[SecretNeed],
) -> Result<Result<(), Problem>, kube::Error> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let found = try_join_all(needs.iter().map(|need| secrets.get_opt(&need.secret.0))).await?;
    for (need, secret) in needs.iter().zip(found) {
        let name = &need.secret.0;
        let Some(secret) = secret else {
            return Ok(Err(Problem {
                reason: terms::SECRET_MISSING,
                message: format!(
                    "there is no Secret \"{name}\" in namespace {namespace}, which {} names; create it, and the job goes on by itself",
                    need.path
                ),
            }));
        };
        let data = secret.data.unwrap_or_default();
        let there = data.iter().filter(|(_, value)| !value.0.is_empty()).map(|(key, _)| key.as_str());
        if let Some(missing) = need.missing(there) {
            return Ok(Err(Problem {
                reason: terms::SECRET_KEY_MISSING,
                message: format!("{missing} ({}); add what is missing, and the job goes on by itself", need.path),
            }));
        }
    }
    Ok(Ok(()))
}
