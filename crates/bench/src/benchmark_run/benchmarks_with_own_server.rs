//! Benchmarks that each start a server of their own over the measured database.

use anyhow::{Context as _, Result};

use super::{Bench, DATABASE, INTERLEAVED_DURATION, report_progress};
use crate::background_task_cost::{self, Task, TaskCost};
use crate::child_process::ChildProcess;
use crate::closed_loop_clients::ClientScript;
use crate::environment::start_processes::{start_receiver, start_server, start_server_with_local_egress};
use crate::large_corpus::{self, RetrievalLatency};
use crate::list_pagination::{self, PageFigures};
use crate::notifications::{self, NotificationResults};
use crate::paired_comparison::PairedComparison;
use crate::proofs::{self, ProofFigures};
use crate::verified_tokens;

impl Bench<'_> {
    /// Measures notifications. Uses a separate server, whose egress guard allows a receiver on this machine.
    pub(super) async fn measure_notifications(&self) -> Result<NotificationResults> {
        let mut receiver = start_receiver(self.run_directory).await?;
        let start = async || start_server_with_local_egress(self.run_directory, self.postgres, &self.plan.server).await;
        let server = start().await?;
        let [fairway, _] = &self.databases;
        let results = notifications::measure(&self.fixtures, fairway, receiver.address, server, start).await?;
        receiver.stop().await?;
        Ok(results)
    }

    pub(super) async fn measure_verified_tokens(&self) -> Result<PairedComparison> {
        let measure = async |server: &ChildProcess, scripts: Vec<ClientScript>| {
            self.measure_load(server, scripts, INTERLEAVED_DURATION).await
        };
        verified_tokens::measure(self.run_directory, self.postgres, &self.plan.server, &self.fixtures, measure).await
    }

    pub(super) async fn measure_background_tasks(&self) -> Result<Vec<TaskCost>> {
        let mut costs = Vec::new();
        for task in Task::ALL.into_iter().filter(|task| self.plan.selects(task.name())) {
            report_progress(task.name());
            costs.push(self.measure_task(task).await?);
        }
        Ok(costs)
    }

    async fn measure_task(&self, task: Task) -> Result<TaskCost> {
        let measure = async |server: &ChildProcess, scripts: Vec<ClientScript>| {
            self.measure_load(server, scripts, self.plan.time() / 2).await
        };
        let [fairway, _] = &self.databases;
        let environment = (self.run_directory, self.postgres, self.plan);
        background_task_cost::measure(task, environment, (&self.fixtures, fairway), measure).await
    }

    pub(super) async fn measure_retrieval(&self) -> Result<RetrievalLatency> {
        let chunks = self.plan.pieces;
        report_progress(&format!("storing {chunks} document chunks"));
        let (mut server, _) = start_server(self.run_directory, self.postgres, DATABASE, &self.plan.server).await?;
        let [fairway, _] = &self.databases;
        let workload = large_corpus::store_corpus(&server, &self.fixtures, fairway, chunks).await?;
        report_progress("retrieving documents");
        let latency = large_corpus::measure(&server, &workload, chunks).await.with_context(|| server.log_tail())?;
        server.stop().await?;
        Ok(latency)
    }

    pub(super) async fn measure_pages(&self) -> Result<PageFigures> {
        let (mut server, _) = start_server(self.run_directory, self.postgres, DATABASE, &self.plan.server).await?;
        let [fairway, _] = &self.databases;
        let figures =
            list_pagination::measure(&server, &self.fixtures, fairway).await.with_context(|| server.log_tail())?;
        server.stop().await?;
        Ok(figures)
    }

    pub(super) async fn measure_proofs(&self) -> Result<ProofFigures> {
        let (mut server, _) = start_server(self.run_directory, self.postgres, DATABASE, &self.plan.server).await?;
        let [fairway, _] = &self.databases;
        let figures = proofs::measure(&server, &self.fixtures, fairway, (self.run_directory, &self.plan.server)).await;
        let figures = figures.with_context(|| server.log_tail())?;
        server.stop().await?;
        Ok(figures)
    }
}
