# The three images for both kinds of processors, from docker/Dockerfile:
#
#   docker buildx bake -f docker/bake.hcl --print                         # shows what would be built
#   docker buildx bake -f docker/bake.hcl --push                          # builds all, into REGISTRY
#   docker buildx bake -f docker/bake.hcl --load edge --set '*.platform=linux/arm64'
#
# A processor that the machine has not is emulated (QEMU's binfmt), which takes hours for the hot loops' compiler.

variable "REGISTRY" {
  default = "" # with a slash at its end
}

variable "TAG" {
  default = "latest"
}

variable "TORCH_INDEX" {
  default = "" # as in docker/Dockerfile
}

group "default" {
  targets = ["edge", "aggregator", "tools"]
}

target "image" {
  context    = "."
  dockerfile = "docker/Dockerfile"
  platforms  = ["linux/amd64", "linux/arm64"]
  args       = { TORCH_INDEX = TORCH_INDEX }
}

target "edge" {
  inherits = ["image"]
  target   = "edge"
  tags     = ["${REGISTRY}tacit-edge:${TAG}"]
}

target "aggregator" {
  inherits = ["image"]
  target   = "aggregator"
  tags     = ["${REGISTRY}tacit-aggregator:${TAG}"]
}

target "tools" {
  inherits = ["image"]
  target   = "tools"
  tags     = ["${REGISTRY}tacit:${TAG}"]
}
