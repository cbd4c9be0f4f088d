//! Requests that turn a connection into something else, such as a websocket.

use super::answer::{self, Answer};
use super::client::Client;
use super::error::{Cause, HttpError, Reached};
use super::request::Request;
use super::{Rejection, guard};

/// The answer to a request for another protocol.
#[derive(Debug)]
pub enum Upgrade {
    /// The connection speaks the other protocol from now on; the answer's headers tell how.
    Done(http::HeaderMap, reqwest::Upgraded),
    /// The server did not want to.
    Declined(Answer),
}

impl Request<'_> {
    /// Asks for the protocol that the headers name. The timeout is for the answer, not for what follows.
    pub async fn send_upgrade(self) -> Result<Upgrade, HttpError> {
        self.client.run_upgrade(self).await
    }
}

impl Client {
    async fn run_upgrade(&self, mut request: Request<'_>) -> Result<Upgrade, HttpError> {
        let mut renewed = false;
        loop {
            let session = self.session().await?;
            let declined = {
                // Only while the answer is awaited: what follows may last for days.
                let _slot = self.slot().await?;
                let timeout = request.timeout;
                let shown = guard::shown(&request.url);
                let late = |_| {
                    let place = &shown;
                    let message = format!("{place} did not answer within {} s", timeout.as_secs_f32());
                    HttpError::new(Cause::Timeout, Reached::Perhaps, message)
                };
                let (response, place) =
                    match tokio::time::timeout(timeout, self.head(&session, &mut request, None)).await {
                        Ok(head) => head?,
                        Err(elapsed) => return Err(late(elapsed)),
                    };
                let (status, headers) = (response.status(), response.headers().clone());
                if status == http::StatusCode::SWITCHING_PROTOCOLS {
                    let upgraded = response
                        .upgrade()
                        .await
                        .map_err(|error| HttpError::from_transport(error, &place, timeout, true))?;
                    return Ok(Upgrade::Done(headers, upgraded));
                }
                let body = answer::read_bounded(response, &place, self.options().largest_answer, timeout);
                let body = tokio::time::timeout(timeout, body).await.map_err(late)??;
                Answer { status, headers, body, place }
            };
            let rejected = (self.options().rejects)(&declined) != Rejection::No;
            if rejected && !renewed && self.renew(&session).await {
                renewed = true;
                continue;
            }
            return Ok(Upgrade::Declined(declined));
        }
    }
}
