package otlp

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// Metrics sends the daemon's figures to a collector, from time to time.
type Metrics struct{ provider *sdkmetric.MeterProvider }

// NewMetrics returns a sender of what from has, to the collector in the environment. Each sending is
// like one scrape. The caller closes it.
func NewMetrics(ctx context.Context, from prometheus.Gatherer, version string) (*Metrics, error) {
	to, err := otlpmetrichttp.New(ctx)
	if err != nil {
		return nil, unusable("open metric exporter", err)
	}
	reader := sdkmetric.NewPeriodicReader(to,
		sdkmetric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(from))))
	return &Metrics{sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader),
		sdkmetric.WithResource(ourResource(version)))}, nil
}

// Close sends the figures once more and ends the sender.
func (m *Metrics) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), sendTime)
	defer cancel()
	return m.provider.Shutdown(ctx)
}
