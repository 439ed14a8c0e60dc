# Hulk's images. Everything of Hulk is in /opt/hulk, beside the Python (and torch) of the base.
#
#     (none)     operator, agent, launcher and runtime on BASE: one image for all
#     operator   operator and command line alone, on SLIM_BASE, without torch
#     agent      the agent alone, on SLIM_BASE, without torch
#     runtime    launcher and runtime on BASE: what jobs run in
#
# The first and the agent's also hold /opt/hulk/instrumentation: what an init container copies into a worker, so that
# Hulk's all-reduce works in an image that has nothing of Hulk.
#
# The build context is a folder with requirements/, wheels/ (every dependency), dist/ (Hulk's own wheels) and
# the scripts that run here; `hulk-lab image` makes it and prints where it is. BASE decides which Python and torch jobs get: an image
# with Python 3.11 or newer and its venv module; SLIM_BASE needs no torch. wheels/ are those of the machine that made the
# context; for another Python or architecture pip takes the same versions, with the same checksums, from the package index.
# hulk_operator holds a library: for another architecture its wheel, built there, must lie in dist/ as well. Both bases
# may be named by digest, NAME@sha256:..., for several architectures by that of their index.
ARG BASE=docker.io/library/python:3.11-slim
ARG SLIM_BASE=docker.io/library/python:3.11-slim

FROM ${SLIM_BASE} AS slim
RUN echo 'hulk:x:65532:65532:Hulk:/tmp:/bin/sh' >> /etc/passwd && echo 'hulk:x:65532:' >> /etc/group
ENV PATH=/opt/hulk/bin:$PATH \
    PYTHONUNBUFFERED=1

# An environment without pip, which another one's pip fills.
FROM slim AS environment
RUN python3 -m venv /opt/pip && python3 -m venv --without-pip /opt/hulk

# PIP_NO_INDEX=1 refuses to look anywhere but in wheels/.
FROM environment AS operator-environment
ARG PIP_NO_INDEX=
COPY requirements/operator.txt /tmp/requirements.txt
RUN --mount=type=bind,source=wheels,target=/wheels \
    /opt/pip/bin/python -m pip --python /opt/hulk/bin/python install --quiet --no-compile --find-links=/wheels \
        -r /tmp/requirements.txt
COPY dist/hulk_operator-*.whl /tmp/dist/
COPY slim_image.py /tmp/slim_image.py
RUN /opt/pip/bin/python -m pip --python /opt/hulk/bin/python install --quiet --no-compile --no-index --no-deps \
        --find-links=/tmp/dist hulk-operator && \
    /opt/hulk/bin/python /tmp/slim_image.py hulk_operator hulk_placement

FROM environment AS agent-environment
ARG PIP_NO_INDEX=
COPY requirements/agent.txt /tmp/requirements.txt
RUN --mount=type=bind,source=wheels,target=/wheels \
    /opt/pip/bin/python -m pip --python /opt/hulk/bin/python install --quiet --no-compile --find-links=/wheels \
        -r /tmp/requirements.txt
COPY dist/hulk_runtime-*.whl /tmp/dist/
COPY slim_image.py /tmp/slim_image.py
RUN /opt/pip/bin/python -m pip --python /opt/hulk/bin/python install --quiet --no-compile --no-index --no-deps \
        --find-links=/tmp/dist hulk-runtime && \
    /opt/hulk/bin/python /tmp/slim_image.py hulk_runtime.agent

FROM environment AS instrumentation
ARG PIP_NO_INDEX=
COPY requirements/instrumentation.txt /tmp/requirements.txt
COPY instrumentation_folder.py /tmp/instrumentation_folder.py
RUN --mount=type=bind,source=wheels,target=/wheels \
    PIP_FIND_LINKS=/wheels /opt/pip/bin/python /tmp/instrumentation_folder.py download /tmp/requirements.txt /tmp/wheels
COPY dist/hulk_runtime-*.whl /tmp/dist/
RUN /opt/pip/bin/python /tmp/instrumentation_folder.py make /tmp/wheels /tmp/dist/hulk_runtime-*.whl /opt/instrumentation

FROM slim AS operator
COPY --from=operator-environment /opt/hulk /opt/hulk
USER 65532:65532
CMD ["hulk-operator"]

FROM slim AS agent
# The agent measures bandwidth with iperf3; false when the base has it already.
ARG INSTALL_IPERF3=true
RUN if [ "$INSTALL_IPERF3" = true ]; then \
        apt-get update && apt-get install -y --no-install-recommends iperf3 && rm -rf /var/lib/apt/lists/*; \
    fi
COPY --from=agent-environment /opt/hulk /opt/hulk
COPY --from=instrumentation /opt/instrumentation /opt/hulk/instrumentation
USER 65532:65532
CMD ["hulk-agent"]

# --system-site-packages: what the base brings (torch) is used, not brought again. This layer is in both images below.
FROM ${BASE} AS runtime-dependencies
ARG PIP_NO_INDEX=
RUN echo 'hulk:x:65532:65532:Hulk:/tmp:/bin/sh' >> /etc/passwd && echo 'hulk:x:65532:' >> /etc/group
ENV PATH=/opt/hulk/bin:$PATH \
    PYTHONUNBUFFERED=1
COPY requirements/runtime.txt /opt/hulk/requirements/
RUN --mount=type=bind,source=wheels,target=/wheels \
    python3 -m venv --system-site-packages /opt/hulk && \
    /opt/hulk/bin/python -m pip install --quiet --find-links=/wheels -r /opt/hulk/requirements/runtime.txt

FROM runtime-dependencies AS runtime
COPY dist/hulk_runtime-*.whl /opt/hulk/dist/
RUN /opt/hulk/bin/python -m pip install --quiet --no-index --no-deps --find-links=/opt/hulk/dist hulk-runtime
USER 65532:65532
CMD ["hulk-launch", "--help"]

FROM runtime-dependencies
ARG INSTALL_IPERF3=true
RUN if [ "$INSTALL_IPERF3" = true ]; then \
        apt-get update && apt-get install -y --no-install-recommends iperf3 && rm -rf /var/lib/apt/lists/*; \
    fi
COPY requirements/operator.txt /opt/hulk/requirements/
RUN --mount=type=bind,source=wheels,target=/wheels \
    /opt/hulk/bin/python -m pip install --quiet --find-links=/wheels -r /opt/hulk/requirements/operator.txt
COPY dist/ /opt/hulk/dist/
RUN /opt/hulk/bin/python -m pip install --quiet --no-index --no-deps --find-links=/opt/hulk/dist \
        hulk-operator hulk-runtime
COPY --from=instrumentation /opt/instrumentation /opt/hulk/instrumentation
USER 65532:65532
CMD ["hulk", "--help"]
