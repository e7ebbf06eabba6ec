{{- /* Fills in the defaults that depend on other values. Each template begins with it. */ -}}
{{- define "portcullis.defaults" -}}
{{- $values := .Values }}
{{- $authorizes := .Values.authorization.enabled }}
{{- if not .Values.kind }}{{ $_ := set $values "kind" (ternary "DaemonSet" "Deployment" $authorizes) }}{{ end }}
{{- if kindIs "invalid" .Values.hostNetwork }}{{ $_ := set $values "hostNetwork" $authorizes }}{{ end }}
{{- if kindIs "invalid" .Values.nodeSelector }}
{{- $_ := set $values "nodeSelector" (ternary (dict "node-role.kubernetes.io/control-plane" "") (dict "kubernetes.io/os" "linux") $authorizes) }}
{{- end }}
{{- if kindIs "invalid" .Values.tolerations }}
{{- $_ := set $values "tolerations" (ternary (list (dict "operator" "Exists")) list $authorizes) }}
{{- end }}
{{- if not .Values.priorityClassName }}
{{- $_ := set $values "priorityClassName" (ternary "system-cluster-critical" "system-node-critical" (eq .Values.kind "Deployment")) }}
{{- end }}
{{- if not .Values.certificates.source }}
{{- $_ := set $values.certificates "source" (ternary "init" "register" $authorizes) }}
{{- end }}
{{- if kindIs "invalid" .Values.registrations.enabled }}{{ $_ := set $values.registrations "enabled" (not $authorizes) }}{{ end }}
{{- if kindIs "invalid" .Values.console.enabled }}
{{- $_ := set $values.console "enabled" (not (or $authorizes .Values.hostNetwork)) }}
{{- end }}
{{- include "portcullis.validate" . }}
{{- end }}

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
{{- $tls := dict "certificate" "pki/server.crt" "privateKey" "pki/server.key" -}}
{{- if not .Values.authorization.enabled -}}
{{- $callers = list (dict "pathToken" (dict "file" "pki/path-token")) -}}
{{- else -}}
{{- $_ := set $tls "clientCA" "pki/ca.crt" -}}
{{- if eq .Values.certificates.source "init" -}}
{{- $callers = list
  (dict "kubeconfig" "kubeconfigs/authorization.kubeconfig" "endpoints" (list "authorize"))
  (dict "kubeconfig" "kubeconfigs/admission.kubeconfig" "endpoints" (list "validate" "mutate")) -}}
{{- end -}}
{{- $names := .Values.certificates.certManager.commonNames -}}
{{- $callers = concat $callers (list
  (dict "clientCertificate" (dict "commonNames" (list $names.authorization)) "endpoints" (list "authorize"))
  (dict "clientCertificate" (dict "commonNames" (list $names.admission)) "endpoints" (list "validate" "mutate"))) -}}
{{- end -}}
{{- $manifests := list "policies" -}}
{{- if ne .Values.podSecurity.level "privileged" }}{{ $manifests = append $manifests "pod-security" }}{{ end -}}
{{- $ours := dict
  "apiVersion" "config.portcullis.dev/v1alpha1"
  "kind" "GatewayConfiguration"
  "server" (dict "address" "0.0.0.0:8443" "tls" $tls)
  "admin" (dict "address" (printf "%s:%v" (include "portcullis.adminAddress" .) .Values.admin.port))
  "callers" $callers
  "manifests" $manifests
  "decisionLog" (dict "path" "-") -}}
{{- $admission := dict -}}
{{- if not .Values.authorization.enabled }}{{ $_ := set $admission "enforceAuthorization" true }}{{ end -}}
{{- if and (not .Values.enforce) (ne .Values.podSecurity.level "privileged") -}}
{{- /* A Namespace that is not known yet is no reason to refuse, where findings only warn. */ -}}
{{- $_ := set $admission "missingNamespace" "NameOnly" -}}
{{- end -}}
{{- if $admission }}{{ $_ := set $ours "admission" $admission }}{{ end -}}
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
{{- $source := .Values.certificates.source }}
{{- if and .Values.authorization.enabled (eq $source "register") }}
{{- fail "certificates.source: with authorization.enabled, the files of API servers are made by init or certManager" }}
{{- end }}
{{- if and (eq $source "init") (not .Values.authorization.enabled) }}
{{- fail "certificates.source: init is for API servers that ask for authorization too: set authorization.enabled, or leave it to register or certManager" }}
{{- end }}
{{- if and (eq $source "certManager") (not .Values.certificates.certManager.issuerRef) }}
{{- fail "certificates.certManager.issuerRef: name the Issuer or ClusterIssuer" }}
{{- end }}
{{- if and .Values.serviceMonitor.enabled (hasPrefix "127." (include "portcullis.adminAddress" .)) }}
{{- fail "serviceMonitor.enabled: Prometheus cannot reach 127.0.0.1 of a node; set admin.address to 0.0.0.0 and keep others away from the port" }}
{{- end }}
{{- if and (include "portcullis.consoleIsExposed" .) (not .Values.console.callers) }}
{{- fail "console.callers: name who may see it, such as {clientCertificate: {organizations: [platform-team]}}, or leave console.address on 127.0.0.1" }}
{{- end }}
{{- if and .Values.console.callers (not .Values.authorization.enabled) }}
{{- fail "console.callers: there is no CA for them without authorization.enabled; leave console.address on 127.0.0.1, and use kubectl port-forward" }}
{{- end }}
{{- if and .Values.authorization.enabled .Values.registrations.enabled (eq $source "init") (not .Values.registrations.caBundle) }}
{{- fail "registrations.caBundle: set it to pki/ca.crt of the set-up (--set-file registrations.caBundle=/etc/portcullis/pki/ca.crt)" }}
{{- end }}
{{- if and (eq .Values.watch.admission "Declared") (not .Values.enforce) }}
{{- fail "watch.admission: Declared says that the registrations have failurePolicy Fail: set enforce too" }}
{{- end }}
{{- if and .Release.IsUpgrade (not .Values.authorization.enabled) }}
{{- with lookup "v1" "ConfigMap" .Release.Namespace "portcullis-configuration" }}
{{- if contains "endpoints:\n  - authorize\n" (index (.data | default dict) "portcullis.yaml" | default "") }}
{{- fail "authorization.enabled: the gateways of this release answer API servers about authorization, and without it these would refuse every request. Set it to true, or first take the flags from the API servers and uninstall the chart" }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The webhook configuration of this kind, mutating or validating, as `portcullis init` writes it. */ -}}
{{- define "portcullis.registration" -}}
{{- $values := .root.Values }}
{{- $namespaces := concat $values.excludedNamespaces (list .root.Release.Namespace) | uniq | join ", " }}
{{- $text := .root.Files.Get (printf "files/registrations/%s.yaml" .kind)
  | replace "{{match-conditions}}" (.root.Files.Get "files/registrations/match-conditions.yaml")
  | replace "{{name}}" "portcullis"
  | replace "{{namespaces}}" $namespaces }}
{{- if not $values.enforce }}{{ $text = $text | replace "failurePolicy: Fail" "failurePolicy: Ignore" }}{{ end }}
{{- if not $values.authorization.enabled }}
{{- $service := printf "service: {namespace: %s, name: portcullis, port: 8443, path: $1}" .root.Release.Namespace }}
{{- $text = regexReplaceAll "url: https://\\{\\{host\\}\\}:8443(/[a-z]+)" $text $service }}
{{- end }}
{{- if or (not $values.authorization.enabled) (and (eq $values.certificates.source "certManager") (not $values.registrations.caBundle)) }}
{{- $text = $text | replace "    caBundle: {{ca}}\n" "" }}
{{- end }}
{{- $text = $text | replace "{{host}}" $values.registrations.host | replace "{{ca}}" ($values.registrations.caBundle | b64enc) }}
{{- if contains "{{" $text }}{{ fail "the registrations have a gap that the chart does not fill" }}{{ end }}
{{- $text }}
{{- end }}

{{- /* For the CA injector of cert-manager, where it is to fill in the caBundle; else empty. */ -}}
{{- define "portcullis.injection" -}}
{{- if and (eq .Values.certificates.source "certManager") (not .Values.registrations.caBundle) -}}
cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/portcullis-server
{{- end }}
{{- end }}

{{- define "portcullis.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- /* What runs `portcullis register`. */ -}}
{{- define "portcullis.registerPod" -}}
{{- $values := .root.Values -}}
metadata:
  labels:
    app.kubernetes.io/name: portcullis-register
    app.kubernetes.io/instance: {{ .root.Release.Name }}
spec:
  restartPolicy: Never
  serviceAccountName: portcullis-register
  automountServiceAccountToken: true
  enableServiceLinks: false
  {{- with $values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with $values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations: {{- toYaml . | nindent 2 }}
  {{- end }}
  securityContext: {{- include "portcullis.podSecurityContext" .root | nindent 4 }}
  containers:
  - name: register
    image: {{ include "portcullis.image" .root }}
    imagePullPolicy: {{ $values.image.pullPolicy }}
    args:
    - register
    - --filename=/etc/portcullis/mutating.yaml
    - --filename=/etc/portcullis/validating.yaml
    - --namespace={{ .root.Release.Namespace }}
    {{- if .remove }}
    - --remove
    {{- else }}
    - --after={{ $values.kind | lower }}/portcullis
    {{- if eq $values.certificates.source "register" }}
    - --host=portcullis.{{ .root.Release.Namespace }}.svc
    {{- end }}
    {{- with $values.register.renewBefore }}
    - --renew-before={{ . }}
    {{- end }}
    {{- end }}
    resources: {{- toYaml $values.register.resources | nindent 6 }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    volumeMounts:
    - {name: webhooks, mountPath: /etc/portcullis, readOnly: true}
  volumes:
  - name: webhooks
    configMap: {name: portcullis-webhooks}
{{- end }}

{{- define "portcullis.registerJob" -}}
{{- $pod := include "portcullis.registerPod" (dict "root" . "remove" (not .Values.registrations.enabled)) }}
{{- $webhooks := list }}
{{- range list "mutating" "validating" }}
{{- $webhooks = append $webhooks (include "portcullis.registration" (dict "root" $ "kind" .)) }}
{{- end -}}
portcullis-register-{{ printf "%s%s" $pod ($webhooks | join "") | sha256sum | trunc 10 }}
{{- end }}
