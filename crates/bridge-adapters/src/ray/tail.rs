//! The websocket on which Ray sends a log as it grows.

use bytes::Bytes;
use futures::StreamExt;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::http::Upgrade;

/// Ray sends about 20,000 characters at once, or one line, however long.
const LARGEST_MESSAGE: usize = 16 * 1024 * 1024;

/// An open websocket.
pub(super) struct Tail(WebSocketStream<reqwest::Upgraded>);

impl std::fmt::Debug for Tail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tail(..)")
    }
}

impl Tail {
    /// The websocket that an upgrade with this key has led to. `None`: it has not led to one.
    pub(super) async fn new(upgrade: Upgrade, key: &str) -> Option<Self> {
        let Upgrade::Done(headers, connection) = upgrade else { return None };
        let accepted = headers.get(http::header::SEC_WEBSOCKET_ACCEPT)?;
        if accepted.as_bytes() != derive_accept_key(key.as_bytes()).as_bytes() {
            return None;
        }
        let config =
            WebSocketConfig::default().max_message_size(Some(LARGEST_MESSAGE)).max_frame_size(Some(LARGEST_MESSAGE));
        Some(Self(WebSocketStream::from_raw_socket(connection, Role::Client, Some(config)).await))
    }

    /// The next output; `None` when the server has closed or the connection broke. May be dropped while it waits.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            match self.0.next().await? {
                Ok(Message::Text(text)) => return Some(Bytes::from(text)),
                Ok(Message::Binary(bytes)) => return Some(bytes),
                Ok(Message::Close(_)) => return None,
                // Answers to pings are sent by the stream itself.
                Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
                Err(error) => {
                    tracing::debug!(error = %error, "a log's websocket broke; it is opened again when needed");
                    return None;
                }
            }
        }
    }
}
