{{/* An image by values of the form of `image`, of which each says what those before it leave empty; a digest is that of
one repository. Call with (list $ VALUES...). */}}
{{- define "hulk.imageBy" -}}
{{- $repository := "" -}}
{{- $tag := "" -}}
{{- $digest := "" -}}
{{- range rest . -}}
{{- if not (or $repository $tag $digest) -}}
{{- $digest = .digest -}}
{{- end -}}
{{- $repository = $repository | default .repository -}}
{{- $tag = $tag | default .tag -}}
{{- end -}}
{{- if $digest -}}
{{ $repository }}@{{ $digest }}
{{- else -}}
{{ $repository }}:{{ $tag | default (first .).Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "hulk.image" -}}
{{- include "hulk.imageBy" (list . .Values.image) -}}
{{- end -}}

{{- define "hulk.agentImage" -}}
{{- include "hulk.imageBy" (list . .Values.agent.image .Values.image) -}}
{{- end -}}

{{- define "hulk.instrumentationImage" -}}
{{- include "hulk.imageBy" (list . .Values.instrumentation.image .Values.agent.image .Values.image) -}}
{{- end -}}

{{/* Labels of every object. Call with (dict "root" $ "component" "operator"). */}}
{{- define "hulk.labels" -}}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{ include "hulk.selector" . }}
{{- end -}}

{{/* Labels that choose the pods of one component. */}}
{{- define "hulk.selector" -}}
app.kubernetes.io/name: hulk
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* A user's map of texts under Hulk's own, which win where both have a key. Call with (list MAP "OWN: as YAML"). */}}
{{- define "hulk.under" -}}
{{- toYaml (merge (fromYaml (index . 1)) (index . 0)) -}}
{{- end -}}

{{/* A container's environment: the chart's own, and a user's. Call with (list OWN-TEMPLATE $ NAME-OF-VALUE VALUE). */}}
{{- define "hulk.environment" -}}
{{- $own := include (index . 0) (index . 1) | fromYamlArray -}}
{{- range $entry := index . 3 -}}
{{- range $own -}}
{{- if eq .name $entry.name -}}
{{- fail (printf "%s: %s is set by the chart" (index $ 2) .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml (concat $own (index . 3)) -}}
{{- end -}}

{{/* The pod's half of the restricted Pod Security Standard. */}}
{{- define "hulk.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* The container's half, with a read-only root. */}}
{{- define "hulk.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Annotations by which Prometheus finds a pod. Call with the port. */}}
{{- define "hulk.scrape" -}}
prometheus.io/scrape: "true"
prometheus.io/port: {{ . | quote }}
prometheus.io/path: /metrics
{{- end -}}

{{/* A pod may ask the cluster's DNS. */}}
{{- define "hulk.egressDns" -}}
- ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
{{- end -}}

{{/* A pod may reach the API server, which no selector can name. */}}
{{- define "hulk.egressApiServer" -}}
- ports:
    {{- range .Values.networkPolicy.apiServerPorts }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end -}}
