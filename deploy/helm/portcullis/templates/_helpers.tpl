{{- define "portcullis.labels" -}}
app.kubernetes.io/name: portcullis
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "portcullis.selector" -}}
app.kubernetes.io/name: portcullis
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "portcullis.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- define "portcullis.adminAddress" -}}
{{- .Values.admin.address | default (ternary "127.0.0.1" "0.0.0.0" .Values.hostNetwork) }}
{{- end }}

{{- /* As Go's net.JoinHostPort does. */ -}}
{{- define "portcullis.consoleAddress" -}}
{{- with .Values.console }}{{ ternary (printf "[%s]" .address) .address (contains ":" .address) }}:{{ .port }}{{ end }}
{{- end }}

{{- /* Whether other machines reach the console: a text that is empty if not. */ -}}
{{- define "portcullis.consoleIsExposed" -}}
{{- with .Values.console }}
{{- if and .enabled (not (hasPrefix "127." .address)) (ne .address "::1") }}true{{ end }}
{{- end }}
{{- end }}

{{- /* On loopback the kubelet of the node probes through the host's network. */ -}}
{{- define "portcullis.probe" -}}
{{- $address := include "portcullis.adminAddress" . -}}
{{- if and .Values.hostNetwork (hasPrefix "127." $address) }}host: {{ $address }}
{{ end -}}
port: {{ .Values.admin.port }}
{{- end }}

{{- define "portcullis.configuration" -}}
{{- $callers := list -}}
{{- if eq .Values.certificates.source "init" -}}
{{- $callers = list
  (dict "kubeconfig" "kubeconfigs/authorization.kubeconfig" "endpoints" (list "authorize"))
  (dict "kubeconfig" "kubeconfigs/admission.kubeconfig" "endpoints" (list "validate" "mutate")) -}}
{{- end -}}
{{- $names := .Values.certificates.certManager.commonNames -}}
{{- $callers = concat $callers (list
  (dict "clientCertificate" (dict "commonNames" (list $names.authorization)) "endpoints" (list "authorize"))
  (dict "clientCertificate" (dict "commonNames" (list $names.admission)) "endpoints" (list "validate" "mutate"))) -}}
{{- $tls := dict "certificate" "pki/server.crt" "privateKey" "pki/server.key" "clientCA" "pki/ca.crt" -}}
{{- $ours := dict
  "apiVersion" "config.portcullis.dev/v1alpha1"
  "kind" "GatewayConfiguration"
  "server" (dict "address" "0.0.0.0:8443" "tls" $tls)
  "admin" (dict "address" (printf "%s:%v" (include "portcullis.adminAddress" .) .Values.admin.port))
  "callers" $callers
  "manifests" (list "policies")
  "decisionLog" (dict "path" "-") -}}
{{- if .Values.watch.enabled -}}
{{- $cluster := dict "name" "default" "kubeconfig" "cluster/kubeconfig"
  "cacheFile" "/var/lib/portcullis/default.cache" -}}
{{- range $field := list "acceptExceptions" "writeStatus" -}}
{{- if index $.Values.watch $field }}{{ $_ := set $cluster $field true }}{{ end -}}
{{- end -}}
{{- if ne .Values.watch.admission "None" }}{{ $_ := set $cluster "admission" .Values.watch.admission }}{{ end -}}
{{- $_ := set $ours "clusters" (list $cluster) -}}
{{- end -}}
{{- if .Values.console.enabled -}}
{{- $console := dict "address" (include "portcullis.consoleAddress" .) -}}
{{- if .Values.console.callers -}}
{{- $_ := set $console "tls" (omit $tls "clientCA") -}}
{{- range .Values.console.callers -}}
{{- $callers = append $callers (merge (dict "endpoints" (list "console")) .) -}}
{{- end -}}
{{- $_ := set $ours "callers" $callers -}}
{{- end -}}
{{- $_ := set $ours "console" $console -}}
{{- end -}}
{{- toYaml (mustMergeOverwrite $ours (deepCopy .Values.configuration)) }}
{{- end }}

{{- define "portcullis.validate" -}}
{{- if and .Values.policies .Values.policiesConfigMap }}
{{- fail "policies and policiesConfigMap: set one of them" }}
{{- end }}
{{- if and (eq .Values.certificates.source "certManager") (not .Values.certificates.certManager.issuerRef) }}
{{- fail "certificates.certManager.issuerRef: name the Issuer or ClusterIssuer" }}
{{- end }}
{{- if and .Values.serviceMonitor.enabled (hasPrefix "127." (include "portcullis.adminAddress" .)) }}
{{- fail "serviceMonitor.enabled: Prometheus cannot reach 127.0.0.1 of a node; set admin.address to 0.0.0.0 and keep others away from the port" }}
{{- end }}
{{- if and (include "portcullis.consoleIsExposed" .) (not .Values.console.callers) }}
{{- fail "console.callers: name who may see it, such as {clientCertificate: {organizations: [platform-team]}}, or leave console.address on 127.0.0.1" }}
{{- end }}
{{- if and .Values.registrations.enabled (eq .Values.certificates.source "init") (not .Values.registrations.caBundle) }}
{{- fail "registrations.caBundle: set it to pki/ca.crt of the set-up (--set-file registrations.caBundle=/etc/portcullis/pki/ca.crt)" }}
{{- end }}
{{- end }}
