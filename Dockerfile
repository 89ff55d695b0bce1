# zot in a container: docs/operate.md says how to use it, and what the jail can do inside.
FROM python:3.13-slim AS build
COPY . /source
RUN python -m venv /opt/zot && /opt/zot/bin/pip install --no-cache-dir /source

FROM python:3.13-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends bubblewrap ca-certificates git ripgrep \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home zot \
    && mkdir /project && chown zot: /project
COPY --from=build /opt/zot /opt/zot
ENV PATH=/opt/zot/bin:$PATH PYTHONUNBUFFERED=1
USER zot
WORKDIR /project
ENTRYPOINT ["zot"]
