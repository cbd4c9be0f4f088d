//! `/healthz`, `/readyz` and `/metrics`.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// What the pages show.
pub trait Pages: Send + Sync + 'static {
    /// The numbers.
    fn metrics(&self) -> String;
}

/// What keeps this instance from being ready; `None` if nothing does. A stand-by is ready: it can take over at any time.
pub type Readiness = watch::Receiver<Option<String>>;

/// Serves the pages until `stop` resolves.
pub async fn serve<P: Pages>(
    listen: SocketAddr,
    pages: Arc<P>,
    ready: Readiness,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let app = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route(
            "/readyz",
            get(move || async move {
                match ready.borrow().clone() {
                    None => (StatusCode::OK, "ok\n".to_owned()),
                    Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
                }
            }),
        )
        .route(
            "/metrics",
            get(move || async move {
                let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                ([(header::CONTENT_TYPE, kind)], pages.metrics())
            }),
        );
    let listener = TcpListener::bind(listen).await?;
    axum::serve(listener, app).with_graceful_shutdown(stop).await
}
