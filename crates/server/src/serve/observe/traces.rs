//! Spans of checks for distributed tracing. Off unless an endpoint is configured.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use opentelemetry::trace::{
    Span, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId,
    TraceState, Tracer, TracerProvider,
};
use opentelemetry::{Context as TraceContext, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};
use tollgate::Decision;
use tollgate::limiter::CheckError;

use crate::config::TraceConfig;
use crate::serve::gate::Origin;

/// Sends spans in batches, on a separate thread.
pub(crate) struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    one_in: u32,
    turn: AtomicU32,
}

impl Traces {
    /// Starts the exporter. Must be called inside the runtime that will drive its connection.
    pub(crate) fn start(config: &TraceConfig) -> Result<Traces> {
        let exporter = SpanExporter::builder()
            .with_tonic()
            .with_endpoint(&config.endpoint)
            .build()
            .with_context(|| format!("cannot send traces to {}", config.endpoint))?;
        let resource = Resource::builder()
            .with_service_name("tollgate")
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        let provider = SdkTracerProvider::builder()
            // Sampling is decided before a span is created.
            .with_sampler(Sampler::AlwaysOn)
            .with_resource(resource)
            .with_batch_exporter(exporter)
            .build();
        let tracer = provider.tracer("tollgate");
        Ok(Traces { provider, tracer, one_in: config.one_in.max(1), turn: AtomicU32::new(0) })
    }

    /// Creates the span of a finished check, if it is sampled or its caller is traced.
    pub(crate) fn note(&self, origin: &Origin<'_>, decided: &Result<Decision, CheckError>, took: Duration) {
        let caller = origin.traceparent.and_then(read).filter(SpanContext::is_sampled);
        let turn = || self.turn.fetch_add(1, Ordering::Relaxed).is_multiple_of(self.one_in);
        if caller.is_none() && !turn() {
            return;
        }
        let ended = SystemTime::now();
        let started = ended.checked_sub(took).unwrap_or(ended);
        let mut attributes = vec![KeyValue::new("tollgate.edge", origin.edge.name())];
        match decided {
            Ok(decision) => {
                attributes.push(KeyValue::new("tollgate.allowed", decision.allowed()));
                attributes.push(KeyValue::new("tollgate.degraded", decision.degraded()));
                if let Some(rule) = decision.headline() {
                    attributes.push(KeyValue::new("tollgate.rule", rule.id().to_owned()));
                }
            }
            Err(_) => attributes.push(KeyValue::new("tollgate.allowed", false)),
        }
        let span = SpanBuilder::from_name("tollgate.check")
            .with_kind(SpanKind::Server)
            .with_start_time(started)
            .with_attributes(attributes);
        let context = TraceContext::new();
        let context = caller.map_or(context.clone(), |caller| context.with_remote_span_context(caller));
        let mut span = self.tracer.build_with_context(span, &context);
        if let Err(error) = decided {
            span.set_status(Status::error(error.to_string()));
        }
        span.end_with_timestamp(ended);
    }

    /// Sends the remaining spans.
    pub(crate) fn end(&self) {
        if let Err(error) = self.provider.shutdown() {
            tracing::warn!(event = "traces_lost", "the last traces could not be sent: {error}");
        }
    }
}

/// The caller's span, from a `traceparent` header: `00-<trace>-<span>-<flags>`.
fn read(header: &str) -> Option<SpanContext> {
    let mut parts = header.trim().split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    if version.len() != 2 || version == "ff" || trace.len() != 32 || span.len() != 16 || flags.len() != 2 {
        return None;
    }
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?);
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    Some(SpanContext::new(trace, span, flags, true, TraceState::default())).filter(SpanContext::is_valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_header_names_the_callers_span() {
        let caller = read("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap();
        assert_eq!(caller.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert!(caller.is_sampled() && caller.is_remote());
        for wrong in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-zz",
            "00-xyz7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert!(read(wrong).is_none(), "{wrong}");
        }
    }
}
