// Command kube-apiserver is the API server of the Kubernetes version that
// go.mod pins, unchanged but for one pace: it reads client certificates again
// every CLIENT_CERTIFICATE_REFRESH (a Go duration) where that is set, not every
// five minutes, so that a test need not wait as long.
package main

import (
	"os"
	"time"

	"k8s.io/client-go/transport"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	if refresh, err := time.ParseDuration(os.Getenv("CLIENT_CERTIFICATE_REFRESH")); err == nil {
		transport.CertCallbackRefreshDuration = refresh
	}
	os.Exit(cli.Run(app.NewAPIServerCommand()))
}
