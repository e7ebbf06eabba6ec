// Command kube-controller-manager runs the controllers of the Kubernetes version
// that go.mod pins, unchanged: deployments, jobs, namespaces, tokens, garbage.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func main() {
	os.Exit(cli.Run(app.NewControllerManagerCommand()))
}
