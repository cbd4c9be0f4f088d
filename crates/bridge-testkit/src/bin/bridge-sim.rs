//! Runs the test servers of this crate as processes of their own.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use bridge_testkit::s3::{self, S3Keys};
use clap::{Parser, Subcommand};
use tokio::net::TcpListener;

#[derive(Debug, Parser)]
#[command(about, version)]
struct Args {
    #[command(subcommand)]
    server: Server,
}

#[derive(Debug, Subcommand)]
enum Server {
    /// An S3 server that keeps objects as files and checks signatures.
    S3(S3Args),
}

#[derive(Debug, clap::Args)]
struct S3Args {
    /// Address and port to listen on.
    #[arg(long)]
    listen: SocketAddr,
    /// Folder of the objects; buckets are its folders.
    #[arg(long)]
    root: PathBuf,
    /// The access key, from the environment: arguments are visible to everybody on the machine.
    #[arg(env = "BRIDGE_SIM_S3_ACCESS_KEY", hide = true)]
    access_key: String,
    /// The secret key, from the environment.
    #[arg(env = "BRIDGE_SIM_S3_SECRET_KEY", hide = true, hide_env_values = true)]
    secret_key: String,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    match Args::parse().server {
        Server::S3(args) => {
            let listener =
                TcpListener::bind(args.listen).await.with_context(|| format!("cannot listen on {}", args.listen))?;
            let keys = S3Keys::new(args.access_key, args.secret_key);
            s3::serve(listener, &args.root, &keys).await
        }
    }
}
