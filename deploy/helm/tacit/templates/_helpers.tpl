{{- define "tacit.labels" -}}
app.kubernetes.io/name: tacit
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "tacit.selector" -}}
{{ include "tacit.labels" . | fromYaml | toJson }}
{{- end }}

{{- define "tacit.metadata" -}}
name: {{ .root.Release.Name }}-{{ .part }}
labels:
  {{- include "tacit.labels" . | nindent 2 }}
  app.kubernetes.io/managed-by: {{ .root.Release.Service }}
  helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{/* By digest alone: a tag may be moved. */}}
{{- define "tacit.image" -}}
{{- $image := index .root.Values.images .image -}}
{{- $repository := required (printf "images.%s.repository: name it" .image) $image.repository -}}
{{- $digest := required (printf "images.%s.digest: sha256:…, which `docker push` prints" .image) $image.digest -}}
{{- if not (regexMatch "^sha256:[0-9a-f]{64}$" $digest) -}}
{{- fail (printf "images.%s.digest=%q: expected sha256: and 64 hexadecimal digits" .image $digest) -}}
{{- end -}}
{{- printf "%s@%s" $repository $digest -}}
{{- end }}

{{- define "tacit.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .user }}
  runAsGroup: {{ .user }}
  fsGroup: {{ .user }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "tacit.container" -}}
image: {{ include "tacit.image" . }}
imagePullPolicy: IfNotPresent
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
{{- end }}

{{- define "tacit.threads" -}}
- { name: OMP_NUM_THREADS, value: "1" }
- { name: OPENBLAS_NUM_THREADS, value: "1" }
{{- end }}

{{- define "tacit.claim" -}}
- apiVersion: v1
  kind: PersistentVolumeClaim
  metadata: { name: {{ .name }} }
  spec:
    accessModes: [ReadWriteOnce]
    {{- with .storage.storageClassName }}
    storageClassName: {{ . }}
    {{- end }}
    resources: { requests: { storage: {{ .storage.size }} } }
{{- end }}

{{/* What is deleted or scaled keeps its volumes: a deleted ledger is a fresh budget for the same rows. */}}
{{- define "tacit.retention" -}}
persistentVolumeClaimRetentionPolicy: { whenDeleted: Retain, whenScaled: Retain }
{{- end }}

{{- define "tacit.broker" -}}
{{- .Values.broker.address | default (printf "%s-broker:8883" .Release.Name) -}}
{{- end }}

{{- define "tacit.ownBroker" -}}
{{- if and (eq .Values.mode "run") (not .Values.broker.address) }}yes{{ end -}}
{{- end }}

{{- define "tacit.ownStore" -}}
{{- if and (eq .Values.mode "run") (not .Values.store.urlSecret.name) }}yes{{ end -}}
{{- end }}

{{- define "tacit.data" -}}
{{- if .Values.run.dataClaim -}}
persistentVolumeClaim: { claimName: {{ .Values.run.dataClaim }}, readOnly: true }
{{- else -}}
emptyDir: { sizeLimit: 1Mi }
{{- end -}}
{{- end }}

{{- define "tacit.runSettings" -}}
- { name: TACIT_RUN_FILE, value: /etc/tacit/run.toml }
- { name: TACIT_RUN_ID, value: {{ .Values.run.id | quote }} }
- { name: TACIT_BROKER, value: {{ include "tacit.broker" . | quote }} }
- { name: TACIT_DATA, value: /data }
{{- end }}
