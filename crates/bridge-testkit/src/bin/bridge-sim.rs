//! Runs the test servers of this crate as processes of their own.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use bridge_testkit::ray;
use bridge_testkit::s3::{self, S3Keys};
use bridge_testkit::slurm;
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
    /// A Ray head that really runs entrypoints, here.
    Ray(ray::Args),
    /// An S3 server that keeps objects as files and checks signatures.
    S3(S3Args),
    /// A Slurm cluster behind slurmrestd whose jobs run as processes of this machine.
    Slurm(slurm::SimArgs),
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
        Server::Ray(args) => ray::run(args).await,
        Server::S3(args) => {
            let listener =
                TcpListener::bind(args.listen).await.with_context(|| format!("cannot listen on {}", args.listen))?;
            let keys = S3Keys::new(args.access_key, args.secret_key);
            s3::serve(listener, &args.root, &keys).await
        }
        Server::Slurm(args) => slurm::simulate(args).await,
    }
}
