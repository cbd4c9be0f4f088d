//! Watching one object of a cluster over hiccups.

use std::fmt::Debug;

use futures::{Stream, StreamExt as _};
use kube::core::Status;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::cluster_jobs::trouble;
use crate::failure::Failure;

/// The object as it changes, `None` while there is none. Whatever may pass is waited out; what asking again cannot change
/// is told.
pub(super) fn watch<K>(
    api: Api<K>,
    name: &str,
    what: &str,
) -> impl Stream<Item = Result<Option<K>, Failure>> + Send + use<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let what = what.to_owned();
    watcher::watch_object(api, name).default_backoff().filter_map(move |change| {
        std::future::ready(match change {
            Ok(object) => Some(Ok(object)),
            Err(error) => {
                tracing::warn!(%error, "the watch broke off");
                refusal(&error).map(|status| Err(trouble(&what, &kube::Error::Api(Box::new(status.clone())))))
            }
        })
    })
}

/// The cluster's word that this may not be watched, or that it has no such kind.
fn refusal(error: &watcher::Error) -> Option<&Status> {
    let status: &Status = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status,
        _ => return None,
    };
    matches!(status.code, 401 | 403 | 404).then_some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: u16) -> watcher::Error {
        let status = Status { code, message: "pods is forbidden".to_owned(), ..Status::default() };
        watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn only_what_asking_again_cannot_change_ends_a_watch() {
        for code in [401, 403, 404] {
            assert!(refusal(&answer(code)).is_some(), "{code}");
        }
        for code in [410, 429, 500, 503, 504] {
            assert!(refusal(&answer(code)).is_none(), "{code}");
        }
        assert!(refusal(&watcher::Error::NoResourceVersion).is_none());
        let broken = kube::Error::ReadEvents(std::io::Error::other("connection reset"));
        assert!(refusal(&watcher::Error::WatchFailed(broken)).is_none());
    }
}
